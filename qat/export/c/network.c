/* A neural network in integers, exported by qat. C99; no heap, no floating point, no library.

   int predict(const uint8_t *input, int32_t *logits);
   int predict_pixels(const uint8_t *pixels, int32_t *logits);

   return the class: the first with the largest logit.
   pixels: bytes 0..255 of the same shape; a byte p means the value p / 255, as in training.
           ${"A table replaces each byte by its code as it is read." if table else "They are the codes."}
   input:  ${steps[0].shape[0] * steps[0].shape[1] * steps[0].shape[2]} codes of ${steps[0].shape | join(" x ")}, as C, H, W.
           The code of a value x is round(x / ${steps[0].settings.scale}), half to even, clamped to ${steps[0].settings.low}..${steps[0].settings.high}, minus ${steps[0].settings.low}.
   logits: ${steps[-1].shape[0]} integers in units of ${program.output_scale}.
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
{% if table %}
/* The code of each pixel byte, as predict takes it. */
static const uint8_t code_of_pixel[256] = {${table | join(", ")}};
static int reads_pixels;

static int input_at(int32_t i) {
  return reads_pixels ? code_of_pixel[input_codes[i]] : input_codes[i];
}
{% endif %}
{% for slot, length in rows %}
static int8_t row${slot}[${length}];
{% endfor %}
{% for number, size in wide.items() %}
static int32_t wide${number}[${size}];
{% endfor %}
{#- The element of a step's array that belongs to channel c, row y and column x. #}
{% macro element(n, c="c", y="y", x="x") -%}
  {% set index = "(%s * %s + %s) * %s + %s" % (c, steps[n].shape[1], y, steps[n].shape[2], x) %}
${"input_at(%s)" % index if table and stored[n].array == "input_codes" else "%s[%s]" % (stored[n].array, index)}
{%- endmacro %}
{# One of the codes of a step minus a zero point. #}
{% macro code(n, zero, c="c", y="y", x="x") -%}
  {% set offset = stored[n].lowest - zero %}
  {% set plain = element(n, "(" ~ c ~ ")", y, x) %}
${"(%s %s %s)" % (plain, "+" if offset > 0 else "-", offset | abs) if offset else plain}
{%- endmacro %}
{# The integers of a step as a term of a sum. #}
{% macro term(n, zero) -%}
  {% if steps[n].op == "conv" %}sum${n}(${"c, " if steps[n].settings.groups > 1}y, x)
  {%- elif steps[n].op == "sum_pool" %}sum${n}(c, y, x)
  {%- else %}(${code(n, zero)}){% endif %}
{%- endmacro %}
{# The loops over all elements of a step's output: channels c, rows y, columns x. #}
{% macro loops(step) %}
  for (int c = 0; c < ${step.shape[0]}; ++c) {
{% for n in step.inputs if steps[n].op == "conv" %}
    load${n}(c);
{% endfor %}
    for (int y = 0; y < ${step.shape[1]}; ++y)
      for (int x = 0; x < ${step.shape[2]}; ++x) {
{%- endmacro %}
{% for step in steps %}
{% set n, s = loop.index0, step.settings %}
{% if step.op == "conv" %}
{% set outputs, channels, rows, columns = s.shape %}
{% set length, row = channels * rows * columns, "row%s" % slots[n] %}
{% set channel = "o / %s * %s + c" % (outputs // s.groups, channels) if s.groups > 1 else "c" %}
{% set source = step.inputs[0] %}

/* ${titles[n] | in_comment} */
static const uint8_t weights${n}[] = {${step.packed_weight | join(", ")}, 0};

static void load${n}(int o) {
  for (int i = 0; i < ${length}; ++i)
    ${row}[i] = (int8_t)(code_at(weights${n}, o * ${length} + i, ${s.bits}) * ${s.step} + ${s.low});
}

static int32_t sum${n}(${"int o, " if s.groups > 1}int y, int x) {
  int32_t sum = 0;
  for (int c = 0; c < ${channels}; ++c)
    for (int i = 0; i < ${rows}; ++i) {
      const int h = y * ${s.stride[0]} + i * ${s.dilation[0]} - ${s.padding[0]};
      if (h < 0 || h >= ${steps[source].shape[1]}) continue;
      for (int j = 0; j < ${columns}; ++j) {
        const int w = x * ${s.stride[1]} + j * ${s.dilation[1]} - ${s.padding[1]};
        if (w < 0 || w >= ${steps[source].shape[2]}) continue;
        sum += ${code(source, s.zero, channel, "h", "w")} * ${row}[(c * ${rows} + i) * ${columns} + j];
      }
    }
  return sum;
}
{% elif step.op == "sum_pool" %}

/* ${titles[n] | in_comment} */
static int32_t sum${n}(int c, int y, int x) {
  int32_t sum = 0;
  for (int i = 0; i < ${s.kernel[0]}; ++i)
    for (int j = 0; j < ${s.kernel[1]}; ++j)
      sum += ${code(step.inputs[0], s.zero, "c", "y * %s + i" % s.stride[0], "x * %s + j" % s.stride[1])};
  return sum;
}
{% elif step.op == "max_pool" %}
{% set source = step.inputs[0] %}
{% set type = "int32_t" if stored[n].is_wide else "uint8_t" %}

/* ${titles[n] | in_comment} */
static void step${n}(void) {
${loops(step)}
        ${type} most = ${s.low if stored[n].is_wide else 0};
        for (int i = 0; i < ${s.kernel[0]}; ++i)
          for (int j = 0; j < ${s.kernel[1]}; ++j) {
            const int h = y * ${s.stride[0]} + i - ${s.padding[0]};
            const int w = x * ${s.stride[1]} + j - ${s.padding[1]};
            if (h < 0 || h >= ${steps[source].shape[1]} || w < 0 || w >= ${steps[source].shape[2]}) continue;
            const ${type} code = ${element(source, "c", "h", "w")};
            if (code > most) most = code;
          }
        ${element(n)} = most;
      }
  }
}
{% elif step.op == "rescale" %}
{% set bias, shift = constants[n][-2:] %}
{% set rounded = "divided(total, %s, %s)" % (s.divisor, shift) if s.divisor > 1 else "shifted(total, %s)" % shift %}
{% set value = "clamped(%s%s, %s, %s)" % (rounded, " + %s" % s.zero if s.zero, s.low, s.high) %}

/* ${titles[n] | in_comment} */
{% for constant in constants[n] if constant.is_array %}
static const ${constant.type} ${constant.name}[] = {${constant.values | join(", ")}};
{% endfor %}
static void step${n}(${"int32_t *logits" if loop.last else "void"}) {
${loops(step)}
        int64_t total = ${bias}${" * ((int64_t)1 << %s)" % s.lift if s.lift};
{% for input in step.inputs %}
{% set factor, added = constants[n][loop.index0] | string, term(input, s.zeros[loop.index0]) %}
        total += ${added if factor == "1" else "(int64_t)%s * %s" % (added, factor)};
{% endfor %}
        ${element(n)} = ${value if stored[n].is_wide else "(uint8_t)(%s - %s)" % (value, s.low) if s.low else "(uint8_t)" ~ value};
      }
  }
}
{% endif %}
{% endfor %}
{% if class_names %}

static const char *const predict_class_names[] = {
{% for name in class_names %}
  ${name},
{% endfor %}
};

/* The name of a class in UTF-8, or 0 if there is no such class. */
const char *predict_class_name(int number) {
  return number >= 0 && number < ${class_names | length} ? predict_class_names[number] : 0;
}
{% endif %}

${"static int run" if table else "int predict"}(const uint8_t *input, int32_t *logits) {
  int best = 0;
  input_codes = input;
{% for number in (places | list + wide | list) | sort %}
  step${number}();
{% endfor %}
  step${steps | length - 1}(logits);
  for (int i = 1; i < ${steps[-1].shape[0]}; ++i)
    if (logits[i] > logits[best]) best = i;
  return best;
}
{% if table %}

int predict(const uint8_t *input, int32_t *logits) {
  reads_pixels = 0;
  return run(input, logits);
}
{% endif %}

int predict_pixels(const uint8_t *pixels, int32_t *logits) {
{% if table %}
  reads_pixels = 1;
{% endif %}
  return ${"run" if table else "predict"}(pixels, logits);
}
