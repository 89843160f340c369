/* Runs model.c: reads codes of SIZE bytes an image from the first file, writes the logits to the second. */

#include <stdio.h>
#include "model.c"

static uint8_t input[SIZE];
static int32_t logits[CLASSES];

int main(int count, char **names) {
  FILE *from = fopen(names[1], "rb"), *to = fopen(names[2], "wb");
  if (!from || !to) return count;
  while (fread(input, 1, SIZE, from) == SIZE) {
    predict(input, logits);
    fwrite(logits, 4, CLASSES, to);
  }
  return fclose(to);
}
