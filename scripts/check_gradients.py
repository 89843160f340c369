"""Check every gradient of the package, or the gradient of one user-defined function.

python scripts/check_gradients.py
python scripts/check_gradients.py my_module:MyFunction --shape 4,3 --shape 3
python scripts/check_gradients.py my_module:MyRounding --shape 4,3 --surrogate my_module:my_gradient
"""

import sys

from qat.cli import main

if __name__ == "__main__":
    main(["check_gradients", *sys.argv[1:]])
