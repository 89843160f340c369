/* A neural network in integers, exported by qat. C99; no heap, no floating point, no library.

   int predict(const uint8_t *input, int32_t *logits);

   returns the class: the first with the largest logit.
   input:  ${input.size} codes of ${input.shape}, as C, H, W
           The code of a value x is round(x / ${input.scale}), half to even, clamped to ${input.low}..${input.high}, minus ${input.low}.
   logits: ${classes} integers in units of ${output_scale}.
   flash:  ${flash} bytes of constants, of these ${weights} of weights, and the code.
   RAM:    ${ram} bytes, all static: two threads must not call predict at the same time. */

#include <stdint.h>

/* Number i of a packed array. It may read one byte more, which the array has at its end. */
static int code_at(const uint8_t *packed, int32_t i, int bits) {
  const int32_t first = i * bits;
  const unsigned pair = packed[first >> 3] | (unsigned)packed[(first >> 3) + 1] << 8;
  return (int)(pair >> (first & 7) & ((1u << bits) - 1u));
}

/* total / 2^shift, half to even. */
static int64_t shifted(int64_t total, int shift) {
  const int64_t floor = total >= 0 ? total >> shift : ~(~total >> shift);
  const int64_t rest = total - floor * ((int64_t)1 << shift);
  const int64_t half = shift ? (int64_t)1 << (shift - 1) : 1;
  return floor + (rest > half || (rest == half && (floor & 1)));
}
{% if divides %}

/* total / (divisor 2^shift), half to even. */
static int64_t divided(int64_t total, int divisor, int shift) {
  const int64_t whole = divisor * ((int64_t)1 << shift);
  int64_t floor = total / whole, rest = total % whole;
  if (rest < 0) rest += whole, floor -= 1;
  return floor + (rest > whole - rest || (rest == whole - rest && (floor & 1)));
}
{% endif %}

static int32_t clamped(int64_t code, int32_t low, int32_t high) {
  return code < low ? low : code > high ? high : (int32_t)code;
}

static uint8_t arena[${[arena, 1] | max}];
static const uint8_t *input_codes;
{% for slot, length in rows %}
static int8_t row${slot}[${length}];
{% endfor %}
{% for number, size in wide %}
static int32_t wide${number}[${size}];
{% endfor %}
{#- The element of a stored tensor that belongs to channel c, row y and column x. #}
{% macro element(step, c="c", y="y", x="x") -%}
  ${step.stored}[(${c} * ${step.shape[1]} + ${y}) * ${step.shape[2]} + ${x}]
{%- endmacro %}
{# One of the codes of a step minus a zero point. #}
{% macro code(step, zero, c="c", y="y", x="x") -%}
  {% set offset = step.lowest - zero %}
  {% if offset %}(${element(step, "(" ~ c ~ ")", y, x)} ${"+" if offset > 0 else "-"} ${offset | abs}){% else %}${element(step, "(" ~ c ~ ")", y, x)}{% endif %}
{%- endmacro %}
{# The integers of a step as a term of a sum. #}
{% macro term(step, zero) -%}
  {% if step.op == "conv" %}sum${step.number}(${"c, " if step.settings.groups > 1}y, x)
  {%- elif step.op == "sum_pool" %}sum${step.number}(c, y, x)
  {%- else %}(${code(step, zero)}){% endif %}
{%- endmacro %}
{# The loops over all elements of a step's output: channels c, rows y, columns x. #}
{% macro loops(shape, loads=()) %}
  for (int c = 0; c < ${shape[0]}; ++c) {
{% for number in loads %}
    load${number}(c);
{% endfor %}
    for (int y = 0; y < ${shape[1]}; ++y)
      for (int x = 0; x < ${shape[2]}; ++x) {
{%- endmacro %}
{% for step in steps %}
{% set s = step.settings %}
{% if step.op == "conv" %}
{% set channel = "o / %s * %s + c" % (s.shape[0] // s.groups, s.shape[1]) if s.groups > 1 else "c" %}

/* ${step.layer} */
static const uint8_t weights${step.number}[] = {${step.weight | join(", ")}, 0};

static void load${step.number}(int o) {
  for (int i = 0; i < ${step.row_length}; ++i)
    row${step.slot}[i] = (int8_t)(code_at(weights${step.number}, o * ${step.row_length} + i, ${s.bits}) * ${s.step} + ${s.low});
}

static int32_t sum${step.number}(${"int o, " if s.groups > 1}int y, int x) {
  int32_t sum = 0;
  for (int c = 0; c < ${s.shape[1]}; ++c)
    for (int i = 0; i < ${s.shape[2]}; ++i) {
      const int h = y * ${s.stride[0]} + i * ${s.dilation[0]} - ${s.padding[0]};
      if (h < 0 || h >= ${step.source.shape[1]}) continue;
      for (int j = 0; j < ${s.shape[3]}; ++j) {
        const int w = x * ${s.stride[1]} + j * ${s.dilation[1]} - ${s.padding[1]};
        if (w < 0 || w >= ${step.source.shape[2]}) continue;
        sum += ${code(step.source, s.zero, channel, "h", "w")} * row${step.slot}[(c * ${s.shape[2]} + i) * ${s.shape[3]} + j];
      }
    }
  return sum;
}
{% elif step.op == "sum_pool" %}

/* ${step.layer} */
static int32_t sum${step.number}(int c, int y, int x) {
  int32_t sum = 0;
  for (int i = 0; i < ${s.kernel[0]}; ++i)
    for (int j = 0; j < ${s.kernel[1]}; ++j)
      sum += ${code(step.source, s.zero, "c", "y * %s + i" % s.stride[0], "x * %s + j" % s.stride[1])};
  return sum;
}
{% elif step.op == "max_pool" %}
{% set type = "int32_t" if step.is_wide else "uint8_t" %}

/* ${step.layer} */
static void step${step.number}(void) {
${loops(step.shape)}
        ${type} most = ${s.low if step.is_wide else 0};
        for (int i = 0; i < ${s.kernel[0]}; ++i)
          for (int j = 0; j < ${s.kernel[1]}; ++j) {
            const int h = y * ${s.stride[0]} + i - ${s.padding[0]};
            const int w = x * ${s.stride[1]} + j - ${s.padding[1]};
            if (h < 0 || h >= ${step.source.shape[1]} || w < 0 || w >= ${step.source.shape[2]}) continue;
            const ${type} code = ${element(step.source, "c", "h", "w")};
            if (code > most) most = code;
          }
        ${element(step)} = most;
      }
  }
}
{% elif step.op == "rescale" %}
{% set bias, shift = step.constants[-2:] %}
{% set rounded = "divided(total, %s, %s)" % (s.divisor, shift) if s.divisor > 1 else "shifted(total, %s)" % shift %}
{% set value = "clamped(%s%s, %s, %s)" % (rounded, " + %s" % s.zero if s.zero, s.low, s.high) %}

/* ${step.layer} */
{% for constant in step.constants if constant.is_array %}
static const ${constant.type} ${constant.name}[] = {${constant.values | join(", ")}};
{% endfor %}
static void step${step.number}(${"int32_t *logits" if step.is_last else "void"}) {
${loops(step.shape, step.loads)}
        int64_t total = ${bias}${" * ((int64_t)1 << %s)" % s.lift if s.lift};
{% for input, zero, factor in step.terms %}
        total += ${"(int64_t)" if factor | string != "1"}${term(input, zero)}${" * %s" % factor if factor | string != "1"};
{% endfor %}
        ${element(step)} = ${value if step.is_wide else "(uint8_t)(%s - %s)" % (value, s.low) if s.low else "(uint8_t)" ~ value};
      }
  }
}
{% endif %}
{% endfor %}

int predict(const uint8_t *input, int32_t *logits) {
  int best = 0;
  input_codes = input;
{% for step in steps[:-1] if step.op in ("rescale", "max_pool") %}
  step${step.number}();
{% endfor %}
  step${steps[-1].number}(logits);
  for (int i = 1; i < ${classes}; ++i)
    if (logits[i] > logits[best]) best = i;
  return best;
}
