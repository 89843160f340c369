"""Check every gradient of the package, or that of a function of your own.

python scripts/check_gradients.py
python scripts/check_gradients.py my_module:MyFunction --shape 4,3 --shape 3
python scripts/check_gradients.py my_module:MyRounding --shape 4,3 --surrogate my_module:my_claim
"""

import sys

from qat.cli import main

if __name__ == "__main__":
    main(["check_gradients", *sys.argv[1:]])
