/* The program of src/c/README.md, built outside the tree against an installed kiln. */
#include <kiln/kiln.h>
#include <stdio.h>

int main(void) {
  float gate[] = {-1, 0, 1, 2}, up[] = {1, 2, 3, 4}, out[4];
  const int64_t shape[] = {4};
  const kiln_stream stream = {{KILN_CPU, 0}, NULL};
  const kiln_argument inputs[] = {
      kiln_array((kiln_view){gate, stream.device, KILN_F32, 1, shape, NULL, 0}),
      kiln_array((kiln_view){up, stream.device, KILN_F32, 1, shape, NULL, 0})};
  const kiln_view output = {out, stream.device, KILN_F32, 1, shape, NULL, 0};
  const kiln_call call = {inputs, 2, &output, 1};
  kiln_function *swiglu = NULL;
  int i;

  if (kiln_parse("swiglu", "silu(gate) * up", NULL, &swiglu) != KILN_OK ||
      kiln_function_call(swiglu, &stream, &call) != KILN_OK) {
    fprintf(stderr, "%s\n", kiln_last_error()->message);
    return 1;
  }
  for (i = 0; i < 4; ++i) printf("%.4f\n", out[i]); /* -0.2689 0.0000 2.1932 7.0464 */
  kiln_function_destroy(swiglu);
  return 0;
}
