"""The parts of a C file that are the same for every network."""

HEAD = """/* A neural network in integers, exported by qat. C99; no heap, no floating point, no library.

   int predict(const uint8_t *input, int32_t *logits);

   returns the class, the first with the largest logit.
   input:  {input}
           Code of a value x: round(x / {input_scale!r}), half to even, clamped to {low}..{high}, minus {low}.
   logits: {classes} integers; one is worth {output_scale!r}.
   flash:  {flash} bytes of constants, of these {weights} of weights; the code comes to them.
   RAM:    {ram} bytes, all static: not for two threads at a time. */

#include <stdint.h>
"""

CODE_AT = """
/* The number in place i of a packed array; a byte is left over at its end. */
static int code_at(const uint8_t *packed, int32_t i, int bits) {
  const int32_t first = i * bits;
  const unsigned pair = packed[first >> 3] | (unsigned)packed[(first >> 3) + 1] << 8;
  return (int)(pair >> (first & 7) & ((1u << bits) - 1u));
}
"""

SHIFTED = """
/* total / 2^shift, half to even. */
static int64_t shifted(int64_t total, int shift) {
  const int64_t floor = total >= 0 ? total >> shift : ~(~total >> shift);
  const int64_t rest = total - floor * ((int64_t)1 << shift);
  const int64_t half = shift ? (int64_t)1 << (shift - 1) : 1;
  return floor + (rest > half || (rest == half && (floor & 1)));
}
"""

DIVIDED = """
/* total / (divisor 2^shift), half to even. */
static int64_t divided(int64_t total, int divisor, int shift) {
  const int64_t whole = divisor * ((int64_t)1 << shift);
  int64_t floor = total / whole, rest = total % whole;
  if (rest < 0) rest += whole, floor -= 1;
  return floor + (rest > whole - rest || (rest == whole - rest && (floor & 1)));
}
"""

CLAMPED = """
static int32_t clamped(int64_t code, int32_t low, int32_t high) {
  return code < low ? low : code > high ? high : (int32_t)code;
}
"""
