"""The names of the classes, which the data and all files of a run agree in."""

from typing import Any

from lightning import LightningModule

from qat.names import check_class_names


class NamedClasses(LightningModule):
    """A module that knows the names of its classes; `classes` is one of its hyper-parameters.

    Attributes:
        class_names: by the data's order of labels; None while no data and no .ckpt file has named them.
    """

    class_names: tuple[str, ...] | None = None

    def name_classes(self, names: Any, where: str) -> None:
        """Take over the class names that `where` gives: the data or a .ckpt file; None: it gives none.

        Raises:
            ValueError: they are not a text for each class, or differ from the names so far.
        """
        if names is None:
            return
        given = check_class_names(names, self.hparams["classes"])
        for number, (ours, theirs) in enumerate(zip(self.class_names or given, given, strict=True)):
            if ours != theirs:
                rule = "class names must be equal in the data and in each .ckpt file"
                got = f"class {number} is {ours!r}, but {theirs!r} in {where}"
                raise ValueError(f"{rule}: {got}; use data with the classes of the training, in their order")
        self.class_names = given
