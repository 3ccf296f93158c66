// libkiln from Go, through the header itself.
package main

/*
#cgo LDFLAGS: -lkiln
#include <stdlib.h>
#include <kiln/kiln.h>

static kiln_status configure(const char *directory) {
  kiln_configuration settings;
  KILN_INIT(&settings);
  settings.cache_directory = directory;
  return kiln_configure(&settings, __FILE__, __LINE__);
}

static kiln_status axpy(const kiln_function *function, float *x, double number, float *y, int64_t size,
                        size_t inputs) {
  const kiln_stream stream = {{KILN_CPU, 0}, NULL};
  kiln_view from = {0}, to;
  kiln_argument arguments[2];
  kiln_call call = {arguments, inputs, &to, 1};
  from.data = x;
  from.dtype = KILN_F32;
  from.rank = 1;
  from.shape = &size;
  to = from;
  to.data = y;
  arguments[0] = kiln_array(from);
  arguments[1] = kiln_number(number);
  return kiln_function_call(function, &stream, &call);
}
*/
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"
)

// The error is that of the thread, which a goroutine may change between two calls of C.
func check(call func() C.kiln_status) (C.kiln_status, string) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	status := call()
	if status == C.KILN_OK {
		return status, ""
	}
	return status, C.GoString(C.kiln_last_error().message)
}

func must(call func() C.kiln_status) {
	if status, message := check(call); status != C.KILN_OK {
		panic(message)
	}
}

func main() {
	directory := C.CString(os.Args[1])
	must(func() C.kiln_status { return C.configure(directory) })

	name, text := C.CString("axpy"), C.CString("x * 2 + b")
	var function *C.kiln_function
	must(func() C.kiln_status { return C.kiln_parse(name, text, nil, &function) })
	defer C.kiln_function_destroy(function)

	const size = 4
	x := (*[size]C.float)(C.malloc(size * 4))
	y := (*[size]C.float)(C.malloc(size * 4))
	defer C.free(unsafe.Pointer(x))
	defer C.free(unsafe.Pointer(y))
	for i := range x {
		x[i] = C.float(i)
	}
	call := func(inputs C.size_t) func() C.kiln_status {
		return func() C.kiln_status { return C.axpy(function, &x[0], 0.5, &y[0], size, inputs) }
	}
	status, message := check(call(2))
	if status == C.KILN_NOT_FOUND {
		fmt.Println("C API: Skipped\nno compiler for the CPU:", message)
		os.Exit(77)
	}
	if status != C.KILN_OK {
		panic(message)
	}
	for i := range y {
		if y[i] != 2*C.float(i)+0.5 {
			panic(fmt.Sprint("wrong: ", *y))
		}
	}
	if status, message := check(call(1)); status != C.KILN_INVALID_ARGUMENT || !strings.Contains(message, "axpy") {
		panic(message)
	}
}
