//! NVIDIA's run-time compiler, loaded from the folder that `HANZO_TEST_CUDA` names. It needs no driver and no GPU.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::path::Path;
use std::ptr;

use libloading::{Library, Symbol};

type Program = *mut c_void;

/// The library.
pub(crate) struct Nvrtc(Library);

/// What a compilation gave.
pub(crate) struct Compiled {
    pub(crate) ptx: String,
    pub(crate) kernels: Vec<Usage>,
}

/// What the assembler said of a kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    pub(crate) name: String,
    pub(crate) registers: u32,
    /// Bytes of stack, spill stores and spill loads.
    pub(crate) spills: [u32; 3],
    pub(crate) shared: u32,
}

impl Usage {
    /// A spill for want of registers is refused. A small one with registers left is the assembler's own choice (for sm_100 it makes some):
    /// the table shows it.
    #[allow(dead_code)] // not every test that includes this module asks
    pub(crate) fn wants_registers(&self) -> bool {
        self.spills.iter().any(|&bytes| bytes > 128) || (self.spills != [0; 3] && self.registers > 128)
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.spills {
            [0, 0, 0] => write!(f, "{}", self.registers),
            [stack, ..] => write!(f, "{} + {stack} bytes", self.registers),
        }
    }
}

impl Nvrtc {
    /// `None` where the variable is not set or leads nowhere.
    pub(crate) fn open() -> Option<Self> {
        let dir = std::env::var_os("HANZO_TEST_CUDA")?;
        let path =
            std::fs::read_dir(Path::new(&dir)).ok()?.flatten().map(|entry| entry.path()).find(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                name.starts_with("libnvrtc.so.")
            })?;
        // SAFETY: NVIDIA's own library, whose initializers take nothing from us.
        unsafe { Library::new(path) }.ok().map(Self)
    }

    /// Compiles for a real architecture ("sm_90").
    pub(crate) fn compile(&self, source: &str, arch: &str) -> Result<Compiled, String> {
        let text = CString::new(source).unwrap();
        let options =
            [&format!("--gpu-architecture={arch}"), "--fmad=false", "--std=c++17", "--ptxas-options=-v"];
        let options = options.map(|o| CString::new(o).unwrap());
        let pointers = options.each_ref().map(|o| o.as_ptr());
        let mut program: Program = ptr::null_mut();
        // SAFETY: signatures as in nvrtc.h; every pointer lives until the program is destroyed.
        unsafe {
            type Create = unsafe extern "C" fn(
                *mut Program,
                *const c_char,
                *const c_char,
                c_int,
                *const *const c_char,
                *const *const c_char,
            ) -> c_int;
            let create: Symbol<'_, Create> = self.0.get(b"nvrtcCreateProgram\0").unwrap();
            let name = c"kernels.cu".as_ptr();
            assert_eq!(create(&mut program, text.as_ptr(), name, 0, ptr::null(), ptr::null()), 0);
            type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
            let compile: Symbol<'_, Compile> = self.0.get(b"nvrtcCompileProgram\0").unwrap();
            let failed = compile(program, pointers.len() as c_int, pointers.as_ptr()) != 0;
            let log = self.bytes(program, b"nvrtcGetProgramLogSize\0", b"nvrtcGetProgramLog\0");
            let log = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy().into_owned();
            let result = if failed {
                Err(log)
            } else {
                let ptx = self.bytes(program, b"nvrtcGetPTXSize\0", b"nvrtcGetPTX\0");
                let cubin = self.bytes(program, b"nvrtcGetCUBINSize\0", b"nvrtcGetCUBIN\0");
                let ptx = CStr::from_bytes_until_nul(&ptx).unwrap().to_string_lossy().into_owned();
                assert!(cubin.starts_with(b"\x7fELF"), "{arch}: no machine code");
                Ok(Compiled { ptx, kernels: usages(&log) })
            };
            type Destroy = unsafe extern "C" fn(*mut Program) -> c_int;
            let destroy: Symbol<'_, Destroy> = self.0.get(b"nvrtcDestroyProgram\0").unwrap();
            destroy(&mut program);
            result
        }
    }

    /// What a pair of "how large" and "give" functions gives.
    unsafe fn bytes(&self, program: Program, size: &[u8], get: &[u8]) -> Vec<u8> {
        type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
        type Get = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
        // SAFETY: as above; the buffer has the size that was asked for.
        unsafe {
            let size: Symbol<'_, Size> = self.0.get(size).unwrap();
            let get: Symbol<'_, Get> = self.0.get(get).unwrap();
            let mut n = 0;
            assert_eq!(size(program, &mut n), 0);
            let mut bytes = vec![0u8; n];
            assert_eq!(get(program, bytes.as_mut_ptr().cast()), 0);
            bytes
        }
    }
}

/// Reads what `ptxas -v` writes: a kernel's name, a line of stack and spills, a line of registers and memory.
fn usages(log: &str) -> Vec<Usage> {
    let mut out: Vec<Usage> = Vec::new();
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let name = rest.split('\'').next().unwrap_or_default().to_owned();
            out.push(Usage { name, ..Usage::default() });
        }
        let Some(kernel) = out.last_mut() else { continue };
        // "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"; "Used 40 registers, used 1 barriers, 128 bytes smem"
        let number = |what: &str| {
            let before = line.split_once(what)?.0;
            let digits = before.rsplit(|c: char| !c.is_ascii_digit()).find(|s| !s.is_empty())?;
            digits.parse::<u32>().ok()
        };
        for (slot, what) in
            kernel.spills.iter_mut().zip(["bytes stack frame", "bytes spill stores", "bytes spill loads"])
        {
            *slot = number(what).unwrap_or(*slot);
        }
        kernel.registers = number(" registers").unwrap_or(kernel.registers);
        kernel.shared = number(" bytes smem").unwrap_or(kernel.shared);
    }
    out
}
