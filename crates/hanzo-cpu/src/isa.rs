//! Instruction sets: what this machine has, and which one the cores use.
//!
//! All give the same bits; they differ in speed only. A [`crate::pool::Pool`] carries the one that its threads use.

use crate::CpuError;

/// An instruction set that the cores have a path for, slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// Portable Rust.
    Scalar,
    /// x86-64 AVX2 with FMA and F16C; int8 dots by `vpmaddubsw`.
    Avx2,
    /// The same with AVX-VNNI's `vpdpbusd`.
    AvxVnni,
    /// AVX-512 F, BW, VL, DQ and VNNI.
    Avx512,
    /// The same with AMX's int8 tiles, for contractions of many rows.
    Amx,
}

/// The vectors of an instruction set, as the cores tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vectors {
    /// Whatever the compiler makes of portable Rust.
    Portable,
    /// 256 bits; `vnni` where int8 dots are `vpdpbusd`.
    Avx2 { vnni: bool },
    /// 512 bits, with VNNI.
    Avx512,
}

impl Isa {
    /// Its vectors. AMX's tiles are for contractions of many rows alone: all else is computed in the vectors of AVX-512.
    #[inline]
    pub(crate) fn vectors(self) -> Vectors {
        match self {
            Isa::Scalar => Vectors::Portable,
            Isa::Avx2 => Vectors::Avx2 { vnni: false },
            Isa::AvxVnni => Vectors::Avx2 { vnni: true },
            Isa::Avx512 | Isa::Amx => Vectors::Avx512,
        }
    }

    /// All there are.
    pub const ALL: [Isa; 5] = [Isa::Scalar, Isa::Avx2, Isa::AvxVnni, Isa::Avx512, Isa::Amx];

    /// The name by which `HANZO_CPU_ISA` asks for it.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::AvxVnni => "avxvnni",
            Isa::Avx512 => "avx512",
            Isa::Amx => "amx",
        }
    }

    /// Whether this machine has it.
    pub fn is_available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c");
            match self {
                Isa::Scalar => true,
                Isa::Avx2 => avx2,
                Isa::AvxVnni => avx2 && is_x86_feature_detected!("avxvnni"),
                Isa::Avx512 => {
                    avx2 && is_x86_feature_detected!("avx512f")
                        && is_x86_feature_detected!("avx512bw")
                        && is_x86_feature_detected!("avx512vl")
                        && is_x86_feature_detected!("avx512dq")
                        && is_x86_feature_detected!("avx512vnni")
                }
                Isa::Amx => Isa::Avx512.is_available() && has_amx(),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Isa::Scalar
        }
    }

    /// All that this machine has, slowest first.
    pub fn available() -> impl Iterator<Item = Isa> {
        Self::ALL.into_iter().filter(|isa| isa.is_available())
    }

    /// The fastest that this machine has.
    pub fn best() -> Isa {
        Self::available().last().unwrap_or(Isa::Scalar)
    }

    /// The instruction set of this name.
    ///
    /// # Errors
    /// [`CpuError::Isa`] where there is no such name or the machine lacks it.
    pub fn named(name: &str) -> Result<Isa, CpuError> {
        Self::available().find(|isa| isa.name() == name).ok_or_else(|| CpuError::Isa {
            asked: name.to_owned(),
            available: Self::available().map(Isa::name).collect::<Vec<_>>().join(", "),
        })
    }
}

/// Whether the processor has AMX's int8 tiles of the size that the core needs, and the system lets this process use them. Tile registers
/// are off until a process asks for them, once, for all its threads (Linux, `Documentation/arch/x86/xstate.rst`).
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[allow(unsafe_code)]
fn has_amx() -> bool {
    use std::arch::x86_64::__cpuid_count;
    const TILE_AND_INT8: u32 = 1 << 24 | 1 << 25;
    const ARCH_REQ_XCOMP_PERM: libc::c_ulong = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_ulong = 18;
    static HAS: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
        if __cpuid_count(0, 0).eax < 0x1d || __cpuid_count(7, 0).edx & TILE_AND_INT8 != TILE_AND_INT8 {
            return false;
        }
        // Palette 1: bytes of a row, number of registers, rows.
        let palette = __cpuid_count(0x1d, 1);
        if palette.ebx & 0xffff != 64 || palette.ebx >> 16 != 8 || palette.ecx & 0xffff != 16 {
            return false;
        }
        // SAFETY: the call reads no memory; where the kernel does not know it, it fails.
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
    });
    *HAS
}

#[cfg(all(target_arch = "x86_64", not(target_os = "linux")))]
fn has_amx() -> bool {
    false
}

/// How many bytes ahead of where they read cores that stream weights ask for memory: into the first level and into the second; 0
/// where not at all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    pub(crate) near: usize,
    pub(crate) far: usize,
}

/// The distances for this machine, in a pass of so many rows. Intel's prefetchers leave 40 % of the bandwidth unused without. Zen 4's do all of
/// it for one row, and requests on top take some away; but not while several rows are multiplied: there requests make 8 rows 1.7 times as fast.
/// Zen 3's leave a fifth unused at one (`docs/levers.md`).
#[cfg(target_arch = "x86_64")]
pub(crate) fn ahead(rows: usize) -> Ahead {
    static DISTANCES: std::sync::LazyLock<[Ahead; 2]> = std::sync::LazyLock::new(|| {
        let id = std::arch::x86_64::__cpuid(0);
        let vendor = [id.ebx, id.edx, id.ecx].map(u32::to_le_bytes);
        if vendor.as_flattened() != b"AuthenticAMD" {
            return [Ahead { near: 3 << 10, far: 12 << 10 }; 2];
        }
        // From Zen 4 on there is AVX-512.
        if std::is_x86_feature_detected!("avx512f") {
            [Ahead { near: 0, far: 0 }, Ahead { near: 0, far: 8 << 10 }]
        } else {
            [Ahead { near: 2 << 10, far: 0 }; 2]
        }
    });
    let [one, several] = *DISTANCES;
    if rows > 1 { several } else { one }
}

/// How the CPU device is set up.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuConfig {
    /// Threads; `None` is one a core.
    pub threads: Option<usize>,
    /// Instruction set; `None` is the machine's best.
    pub isa: Option<Isa>,
    /// Every primitive a launch of its own (the reference for the fused plan; same results).
    pub no_fuse: bool,
    /// Print the plan of a model when it is loaded.
    pub print_plan: bool,
}

/// The environment variables that this crate reads, and what each does. They exist for A/B runs and debugging.
pub const ENVIRONMENT: &[(&str, &str)] = &[
    (
        "HANZO_CPU_ISA",
        "force an instruction set: scalar, avx2, avxvnni, avx512 or amx (same results, other speed)",
    ),
    ("HANZO_CPU_THREADS", "number of threads of the CPU device"),
    ("HANZO_FUSE", "0 runs every primitive alone (same results, other speed)"),
    ("HANZO_PLAN", "print writes the plan of a model to standard error when it is loaded"),
];

impl CpuConfig {
    /// The defaults, with what [`ENVIRONMENT`] overrides. Meant to be called once, by the program.
    ///
    /// # Errors
    /// [`CpuError::Isa`] where the variable names no available instruction set; [`CpuError::Operands`] where the thread
    /// count is no positive number.
    pub fn from_env() -> Result<Self, CpuError> {
        let mut config = CpuConfig::default();
        if let Ok(name) = std::env::var("HANZO_CPU_ISA") {
            config.isa = Some(Isa::named(&name)?);
        }
        if let Ok(n) = std::env::var("HANZO_CPU_THREADS") {
            let threads = n.parse().ok().filter(|&n| n > 0);
            config.threads =
                Some(threads.ok_or_else(|| CpuError::Operands(format!("HANZO_CPU_THREADS={n}")))?);
        }
        config.no_fuse = std::env::var("HANZO_FUSE").is_ok_and(|v| v == "0");
        config.print_plan = std::env::var("HANZO_PLAN").is_ok_and(|v| v == "print");
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_and_strangers_are_refused() {
        for isa in Isa::available() {
            assert_eq!(Isa::named(isa.name()).unwrap(), isa);
        }
        assert!(matches!(Isa::named("sse9"), Err(CpuError::Isa { .. })));
        assert!(Isa::Scalar.is_available());
    }
}
