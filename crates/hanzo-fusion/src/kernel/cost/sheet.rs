//! What devices promise: vendors' data sheets and programming guides, dense rates, boost clocks.

/// A device, by compute unit (NVIDIA: streaming multiprocessor; AMD: compute unit; Apple: core) and as a whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceSheet {
    /// As its vendor sells it.
    pub name: &'static str,
    /// What a kernel is compiled for.
    pub architecture: &'static str,
    /// Lanes of its subgroups.
    pub subgroup: u32,
    /// Compute units.
    pub units: u32,
    /// 32-bit registers of a unit.
    pub registers: u32,
    /// Registers that a lane is given at a time.
    pub register_step: u32,
    /// Bytes of workgroup memory of a unit.
    pub shared: u32,
    /// Invocations that a unit holds at once.
    pub threads: u32,
    /// Workgroups that a unit holds at once.
    pub workgroups: u32,
    /// Memory bandwidth, 10⁹ bytes a second.
    pub gigabytes: f64,
    /// f32 outside of matrix units; a fused multiply-add is two.
    pub f32_tflops: f64,
    /// Packed dot products of bytes, a multiply-add two; where there is no such instruction, the arithmetic that stands for it.
    pub int8_tops: f64,
    /// Matrix units, f16 into f32.
    pub matrix_f16_tflops: f64,
    /// Matrix units, i8 into i32; where there are none, as `int8_tops`.
    pub matrix_i8_tops: f64,
}

impl DeviceSheet {
    /// Integer operations: half of the lanes' f32 rate without fusing, which is what current units have in common.
    pub fn integer_tops(&self) -> f64 {
        self.f32_tflops / 4.0
    }

    /// Bytes of workgroup memory a second: a word a clock for each fourth lane, which is 128 bytes of each unit of 128 lanes, as NVIDIA's,
    /// AMD's and Apple's current ones have it.
    pub fn shared_bytes_a_second(&self) -> f64 {
        self.f32_tflops * 1e12 / 2.0
    }

    /// Workgroups of `workgroup` invocations that a unit holds, by registers a lane, bytes of workgroup memory, and its own limits; 0 where
    /// it cannot hold one.
    pub fn resident(&self, workgroup: u32, registers: u32, shared: u32) -> u32 {
        let registers = registers.next_multiple_of(self.register_step).max(1);
        let by_registers = self.registers / registers.saturating_mul(workgroup).max(1);
        let by_shared = self.shared.checked_div(shared).unwrap_or(u32::MAX);
        (self.threads / workgroup.max(1)).min(self.workgroups).min(by_registers).min(by_shared)
    }
}

macro_rules! sheet {
    ($name:literal $architecture:literal: $units:literal units of $subgroup:literal lanes, $registers:literal registers by $step:literal,
     $shared:literal KiB, $threads:literal threads, $workgroups:literal workgroups;
     $gigabytes:literal GB/s, $f32:literal f32, $int8:literal int8, $half:literal f16 matrix, $byte:literal i8 matrix) => {
        DeviceSheet {
            name: $name,
            architecture: $architecture,
            subgroup: $subgroup,
            units: $units,
            registers: $registers,
            register_step: $step,
            shared: $shared << 10,
            threads: $threads,
            workgroups: $workgroups,
            gigabytes: $gigabytes,
            f32_tflops: $f32,
            int8_tops: $int8,
            matrix_f16_tflops: $half,
            matrix_i8_tops: $byte,
        }
    };
}

/// The devices that estimates are made for.
pub const DEVICES: &[DeviceSheet] = &[
    sheet!("H100 SXM" "sm_90": 132 units of 32 lanes, 65536 registers by 8, 228 KiB, 2048 threads, 32 workgroups;
        3350.0 GB/s, 67.0 f32, 124.0 int8, 989.0 f16 matrix, 1979.0 i8 matrix),
    sheet!("H200" "sm_90": 132 units of 32 lanes, 65536 registers by 8, 228 KiB, 2048 threads, 32 workgroups;
        4800.0 GB/s, 67.0 f32, 124.0 int8, 989.0 f16 matrix, 1979.0 i8 matrix),
    sheet!("RTX 4090" "sm_89": 128 units of 32 lanes, 65536 registers by 8, 100 KiB, 1536 threads, 24 workgroups;
        1008.0 GB/s, 82.6 f32, 165.0 int8, 165.2 f16 matrix, 660.6 i8 matrix),
    sheet!("MI300X" "gfx942": 304 units of 64 lanes, 131072 registers by 8, 64 KiB, 2048 threads, 32 workgroups;
        5300.0 GB/s, 163.4 f32, 327.0 int8, 1307.0 f16 matrix, 2615.0 i8 matrix),
    sheet!("RX 7900 XTX" "gfx1100": 96 units of 32 lanes, 98304 registers by 24, 64 KiB, 1024 threads, 32 workgroups;
        960.0 GB/s, 61.4 f32, 123.0 int8, 122.8 f16 matrix, 122.8 i8 matrix),
    sheet!("Strix Halo" "gfx1151": 40 units of 32 lanes, 98304 registers by 24, 64 KiB, 1024 threads, 32 workgroups;
        256.0 GB/s, 29.7 f32, 59.4 int8, 59.4 f16 matrix, 59.4 i8 matrix),
    sheet!("M3 Max" "apple9": 40 units of 32 lanes, 53248 registers by 8, 32 KiB, 1024 threads, 32 workgroups;
        400.0 GB/s, 14.2 f32, 3.5 int8, 14.2 f16 matrix, 3.5 i8 matrix),
];
