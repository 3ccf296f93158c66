//! libkiln from Rust: the structures and functions of kiln.h that one call takes.
use std::ffi::{c_void, CStr, CString};
use std::os::raw::c_char;
use std::ptr::{null, null_mut};

#[repr(C)]
#[derive(Clone, Copy)]
struct Device {
    kind: i32,
    index: i32,
}

#[repr(C)]
struct Stream {
    device: Device,
    native: *mut c_void,
}

#[repr(C)]
struct Error {
    code: i32,
    has_driver_code: i32,
    driver_code: i32,
    reserved: i32,
    message: *const c_char,
}

#[repr(C)]
struct Configuration {
    size: usize,
    cache_directory: *const c_char, // of an older caller, who knows no more
}

#[repr(C)]
#[derive(Clone, Copy)]
struct View {
    data: *mut c_void,
    device: Device,
    dtype: i32,
    rank: i32,
    shape: *const i64,
    strides: *const i64,
    offset: i64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Scalar {
    bits: u64,
    dtype: i32,
    weak: i32,
}

#[repr(C)]
struct Argument {
    is_scalar: i32,
    reserved: i32,
    scalar: Scalar,
    view: View,
}

#[repr(C)]
struct Call {
    inputs: *const Argument,
    input_count: usize,
    outputs: *const View,
    output_count: usize,
}

const OK: i32 = 0;
const INVALID_ARGUMENT: i32 = 1;
const NOT_FOUND: i32 = 3;
const F32: i32 = 11;
const F64: i32 = 12;
const CPU: Device = Device { kind: 0, index: 0 };

#[link(name = "kiln")]
extern "C" {
    fn kiln_last_error() -> *const Error;
    fn kiln_configure(settings: *const Configuration, file: *const c_char, line: i32) -> i32;
    fn kiln_parse(name: *const c_char, text: *const c_char, options: *const c_void, out: *mut *mut c_void) -> i32;
    fn kiln_function_call(function: *const c_void, stream: *const Stream, call: *const Call) -> i32;
    fn kiln_function_destroy(function: *mut c_void);
}

fn check(status: i32) -> Result<(), (i32, String)> {
    if status == OK {
        return Ok(());
    }
    let error = unsafe { &*kiln_last_error() };
    assert_eq!((error.code, error.has_driver_code, error.driver_code, error.reserved), (status, 0, 0, 0));
    Err((status, unsafe { CStr::from_ptr(error.message) }.to_string_lossy().into_owned()))
}

struct Function(*mut c_void);

impl Function {
    fn parse(name: &str, text: &str) -> Result<Function, (i32, String)> {
        let (name, text) = (CString::new(name).unwrap(), CString::new(text).unwrap());
        let mut made = null_mut();
        check(unsafe { kiln_parse(name.as_ptr(), text.as_ptr(), null(), &mut made) })?;
        Ok(Function(made))
    }

    fn call(&self, inputs: &[Argument], outputs: &[View]) -> Result<(), (i32, String)> {
        let stream = Stream { device: CPU, native: null_mut() };
        let call = Call {
            inputs: inputs.as_ptr(),
            input_count: inputs.len(),
            outputs: outputs.as_ptr(),
            output_count: outputs.len(),
        };
        check(unsafe { kiln_function_call(self.0, &stream, &call) })
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        unsafe { kiln_function_destroy(self.0) }
    }
}

fn main() {
    let directory = CString::new(std::env::args().nth(1).expect("a directory for the cache")).unwrap();
    let settings = Configuration { size: std::mem::size_of::<Configuration>(), cache_directory: directory.as_ptr() };
    check(unsafe { kiln_configure(&settings, null(), 0) }).unwrap();

    let refused = Function::parse("broken", "x +").err().expect("an error");
    assert_eq!(refused.0, INVALID_ARGUMENT);

    let function = Function::parse("axpy", "x * 2 + b").unwrap();
    let (mut x, mut y) = (vec![0f32, 1.0, 2.0, 3.0], vec![0f32; 4]);
    let shape = [4i64];
    let view = |data: &mut Vec<f32>| View {
        data: data.as_mut_ptr() as *mut c_void,
        device: CPU,
        dtype: F32,
        rank: 1,
        shape: shape.as_ptr(),
        strides: null(),
        offset: 0,
    };
    let number = Scalar { bits: 0.5f64.to_bits(), dtype: F64, weak: 1 };
    let inputs = [
        Argument { is_scalar: 0, reserved: 0, scalar: number, view: view(&mut x) },
        Argument { is_scalar: 1, reserved: 0, scalar: number, view: view(&mut x) },
    ];
    match function.call(&inputs, &[view(&mut y)]) {
        Err((NOT_FOUND, message)) => {
            println!("C API: Skipped\nno compiler for the CPU: {message}");
            std::process::exit(77);
        }
        result => result.unwrap(),
    }
    assert_eq!(y, [0.5, 2.5, 4.5, 6.5]);
    let (code, message) = function.call(&inputs[..1], &[view(&mut y)]).unwrap_err();
    assert_eq!(code, INVALID_ARGUMENT);
    assert!(message.contains("axpy"), "{message}");
}
