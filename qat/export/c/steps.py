"""The steps of a network as C functions, and what they take of flash and RAM."""

from typing import Any

from qat.export.c.memory import Place, places, row_slots
from qat.export.integers.npz import packed_weight
from qat.export.integers.program import Step


class StepWriter:
    """Writes one function for each step that stores codes, and for each sum one that computes it in place.

    Args:
        steps: of the network.

    Attributes:
        flash: bytes of constants written so far.
        weights: bytes of weights among them.
    """

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps
        self.places: dict[int, Place]
        self.places, self.arena = places(steps)
        self.slots = row_slots(steps)
        self.flash = self.weights = 0
        self.rows: dict[int, int] = {}  # the longest row of weights of each slot

    @property
    def ram(self) -> int:
        wide = sum(place.bytes for place in self.places.values() if place.is_wide)
        return self.arena + wide + sum(self.rows.values())

    def variables(self) -> str:
        lines = [f"\nstatic uint8_t arena[{max(self.arena, 1)}];", "static const uint8_t *input_codes;"]
        lines += [f"static int8_t row{slot}[{length}];" for slot, length in sorted(self.rows.items())]
        wide = [(n, place) for n, place in self.places.items() if place.is_wide]
        lines += [f"static int32_t wide{n}[{place.bytes // 4}];" for n, place in wide]
        return "\n".join(lines) + "\n"

    def step(self, number: int, step: Step) -> str:
        if step.op == "conv":
            return self._conv(number, step)
        if step.op == "sum_pool":
            return self._sum_pool(number, step)
        if step.op == "max_pool":
            return self._max_pool(number, step)
        return self._rescale(number, step) if step.op == "rescale" else ""

    def predict(self) -> str:
        calls = [f"  step{n}();" for n, s in enumerate(self.steps[:-1]) if s.op in ("rescale", "max_pool")]
        classes = self.steps[-1].shape[0]
        return f"""
int predict(const uint8_t *input, int32_t *logits) {{
  int best = 0;
  input_codes = input;
{chr(10).join(calls)}
  step{len(self.steps) - 1}(logits);
  for (int i = 1; i < {classes}; ++i)
    if (logits[i] > logits[best]) best = i;
  return best;
}}
"""

    # One function for each step

    def _conv(self, number: int, step: Step) -> str:
        s, (source,) = step.settings, step.inputs
        outputs, channels, rows, columns = s["shape"]
        length = channels * rows * columns
        self._constant("weights", len(packed_weight(step)) + 1)
        slot = self.slots[number]
        self.rows[slot] = max(length, self.rows.get(slot, 0))
        row = f"row{slot}"
        each = outputs // s["groups"]
        first = f"o / {each} * {channels} + c" if s["groups"] > 1 else "c"
        return f"""
/* {step.layer} */
static const uint8_t weights{number}[] = {{{_bytes(packed_weight(step))}, 0}};

static void load{number}(int o) {{
  for (int i = 0; i < {length}; ++i)
    {row}[i] = (int8_t)(code_at(weights{number}, o * {length} + i, {s["bits"]}) * {s["step"]} + {s["low"]});
}}

static int32_t sum{number}({"int o, " if s["groups"] > 1 else ""}int y, int x) {{
  int32_t sum = 0;
  for (int c = 0; c < {channels}; ++c)
    for (int i = 0; i < {rows}; ++i) {{
      const int h = y * {s["stride"][0]} + i * {s["dilation"][0]} - {s["padding"][0]};
      if (h < 0 || h >= {self._shape(source)[1]}) continue;
      for (int j = 0; j < {columns}; ++j) {{
        const int w = x * {s["stride"][1]} + j * {s["dilation"][1]} - {s["padding"][1]};
        if (w < 0 || w >= {self._shape(source)[2]}) continue;
        sum += {self._code(source, first, "h", "w", s["zero"])} * {row}[(c * {rows} + i) * {columns} + j];
      }}
    }}
  return sum;
}}
"""

    def _sum_pool(self, number: int, step: Step) -> str:
        s, (source,) = step.settings, step.inputs
        at = f"y * {s['stride'][0]} + i", f"x * {s['stride'][1]} + j"
        return f"""
/* {step.layer} */
static int32_t sum{number}(int c, int y, int x) {{
  int32_t sum = 0;
  for (int i = 0; i < {s["kernel"][0]}; ++i)
    for (int j = 0; j < {s["kernel"][1]}; ++j)
      sum += {self._code(source, "c", *at, s["zero"])};
  return sum;
}}
"""

    def _max_pool(self, number: int, step: Step) -> str:
        s, (source,) = step.settings, step.inputs
        _, height, width = self._shape(source)
        kind, lowest = ("int32_t", s["low"]) if self.places[number].is_wide else ("uint8_t", 0)
        return f"""
/* {step.layer} */
static void step{number}(void) {{
{self._loops(step)}
        {kind} most = {lowest};
        for (int i = 0; i < {s["kernel"][0]}; ++i)
          for (int j = 0; j < {s["kernel"][1]}; ++j) {{
            const int h = y * {s["stride"][0]} + i - {s["padding"][0]};
            const int w = x * {s["stride"][1]} + j - {s["padding"][1]};
            if (h < 0 || h >= {height} || w < 0 || w >= {width}) continue;
            const {kind} code = {self._stored(source)}[(c * {height} + h) * {width} + w];
            if (code > most) most = code;
          }}
        {self._target(number, step)} = most;
      }}
  }}
}}
"""

    def _rescale(self, number: int, step: Step) -> str:
        s, arrays = step.settings, step.arrays
        constants: list[str] = []
        terms = []
        for place, (source, factors) in enumerate(zip(step.inputs, arrays["multiplier"], strict=True)):
            factor = self._number(f"multiplier{number}_{place}", "int32_t", factors, constants)
            term = self._term(source, s["zeros"][place])
            terms.append(f"total += {term};" if factor == "1" else f"total += (int64_t){term} * {factor};")
        bias = self._number(f"bias{number}", "int32_t", arrays["bias"], constants)
        shift = self._number(f"shift{number}", "uint8_t", arrays["shift"], constants)
        start = bias if not s["lift"] else f"{bias} * ((int64_t)1 << {s['lift']})"
        code = f"shifted(total, {shift})"
        if s["divisor"] > 1:
            code = f"divided(total, {s['divisor']}, {shift})"
        code += f" + {s['zero']}" if s["zero"] else ""
        loads = [f"    load{n}(c);" for n in step.inputs if self.steps[n].op == "conv"]
        wide = number == len(self.steps) - 1 or self.places[number].is_wide
        value = f"clamped({code}, {s['low']}, {s['high']})"
        if not wide:
            value = f"(uint8_t)({value} - {s['low']})" if s["low"] else f"(uint8_t){value}"
        logits = "int32_t *logits" if number == len(self.steps) - 1 else "void"
        return f"""
/* {step.layer} */
{"".join(constants)}static void step{number}({logits}) {{
{self._loops(step, loads)}
        int64_t total = {start};
        {(chr(10) + " " * 8).join(terms)}
        {self._target(number, step)} = {value};
      }}
  }}
}}
"""

    # The parts of a function

    def _loops(self, step: Step, before: list[str] | None = None) -> str:
        channels, height, width = step.shape
        head = [f"  for (int c = 0; c < {channels}; ++c) {{", *(before or [])]
        loops = [f"    for (int y = 0; y < {height}; ++y)", f"      for (int x = 0; x < {width}; ++x) {{"]
        return "\n".join([*head, *loops])

    def _term(self, source: int, zero: int) -> str:
        step = self.steps[source]
        if step.op == "conv":
            return f"sum{source}({'c, ' if step.settings['groups'] > 1 else ''}y, x)"
        if step.op == "sum_pool":
            return f"sum{source}(c, y, x)"
        return f"({self._code(source, 'c', 'y', 'x', zero)})"

    def _code(self, source: int, channel: str, row: str, column: str, zero: int) -> str:
        """A code without its zero point, out of the memory where it lies."""
        _, height, width = self._shape(source)
        at = f"(({channel}) * {height} + {row}) * {width} + {column}"
        offset = (0 if self._is_wide(source) else self._low(source)) - zero
        plain = f"{self._stored(source)}[{at}]"
        return f"({plain} {'+' if offset > 0 else '-'} {abs(offset)})" if offset else plain

    def _target(self, number: int, step: Step) -> str:
        _, height, width = step.shape
        where = "logits" if number == len(self.steps) - 1 else self._stored(number)
        return f"{where}[(c * {height} + y) * {width} + x]"

    def _stored(self, number: int) -> str:
        number = self._origin(number)
        if number == 0:
            return "input_codes"
        place = self.places[number]
        return f"wide{number}" if place.is_wide else f"(arena + {place.start})"

    def _origin(self, number: int) -> int:
        """Where codes lie: flattening leaves them where they are."""
        while self.steps[number].op == "flatten":
            (number,) = self.steps[number].inputs
        return number

    def _is_wide(self, number: int) -> bool:
        number = self._origin(number)
        return number > 0 and self.places[number].is_wide

    def _low(self, number: int) -> int:
        return int(self.steps[self._origin(number)].settings["low"])

    def _shape(self, number: int) -> tuple[int, int, int]:
        return self.steps[number].shape

    def _number(self, name: str, kind: str, values: Any, constants: list[str]) -> str:
        """One number where all channels share it, else an array of constants."""
        if len(set(values.tolist())) == 1:
            return str(values[0])
        self._constant("others", len(values) * (1 if kind == "uint8_t" else 4))
        constants.append(f"static const {kind} {name}[] = {{{', '.join(map(str, values.tolist()))}}};\n")
        return f"{name}[c]"

    def _constant(self, what: str, size: int) -> None:
        self.flash += size
        self.weights += size if what == "weights" else 0


def _bytes(packed: bytes) -> str:
    return ", ".join(map(str, packed))
