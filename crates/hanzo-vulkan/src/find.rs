//! Devices as they describe themselves.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fmt;
use std::ops::RangeInclusive;

use ash::vk;

use crate::instance::Shared;

/// A version of Vulkan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// 1.
    pub major: u32,
    /// What counts.
    pub minor: u32,
    /// Of the headers.
    pub patch: u32,
}

impl Version {
    pub(crate) fn of(packed: u32) -> Self {
        Self {
            major: vk::api_version_major(packed),
            minor: vk::api_version_minor(packed),
            patch: vk::api_version_patch(packed),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.patch > 0 { write!(f, ".{}", self.patch) } else { Ok(()) }
    }
}

/// What a device is, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceKind {
    /// A GPU with memory of its own.
    Discrete,
    /// A GPU that shares the host's memory.
    Integrated,
    /// A part of a GPU that a hypervisor lends.
    Virtual,
    /// Something else.
    Other,
    /// A CPU under a driver: it computes what a GPU would, not as fast.
    Cpu,
}

impl DeviceKind {
    /// In a word, for programs.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Discrete => "discrete",
            Self::Integrated => "integrated",
            Self::Virtual => "virtual",
            Self::Other => "other",
            Self::Cpu => "cpu",
        }
    }

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Discrete => "discrete GPU",
            Self::Integrated => "integrated GPU",
            Self::Virtual => "virtual GPU",
            Self::Other => "device of another kind",
            Self::Cpu => "CPU under a driver",
        }
    }
}

/// What a device says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceInfo {
    /// Its number in the loader's order.
    pub index: usize,
    /// As its driver calls it.
    pub name: String,
    /// What it is.
    pub kind: DeviceKind,
    /// The driver's name and version.
    pub driver: String,
    /// Of Vulkan.
    pub api: Version,
    /// Lanes of its subgroups where nobody chooses.
    pub subgroup: u32,
    /// Lanes that can be chosen; one width where nobody can.
    pub subgroups: RangeInclusive<u32>,
    /// Bytes of its largest heap of its own.
    pub memory_bytes: u64,
    /// Most bytes of a buffer that a kernel reads or writes.
    pub max_buffer_bytes: u64,
    /// Most invocations of a workgroup that lies along one axis.
    pub max_workgroup: u32,
    /// Most workgroups by axis.
    pub max_groups: [u32; 3],
    /// Most bytes of workgroup memory.
    pub max_shared_bytes: u64,
    /// Most bytes of parameters.
    pub max_param_bytes: u64,
    /// Nanoseconds of a tick of its clock; `None` where compute work cannot be stamped.
    pub tick_ns: Option<f64>,
    /// Whether it has an instruction for packed dots of signed bytes.
    pub has_dot_instruction: bool,
    /// Whether its subgroups multiply matrices of 16 × 16 × 16: of i8 into i32, of f16 into f32.
    pub matrix_units: [bool; 2],
}

/// What a kernel may need beside Vulkan's core.
#[derive(Clone, Copy, Default)]
pub(crate) struct Features {
    pub(crate) int16: bool,
    pub(crate) int8: bool,
    pub(crate) float16: bool,
    pub(crate) storage16: bool,
    pub(crate) storage8: bool,
    pub(crate) dot: bool,
    pub(crate) memory_model: bool,
    pub(crate) memory_model_device: bool,
    pub(crate) matrices: bool,
    pub(crate) full_subgroups: bool,
    /// Whether a width can be asked for.
    pub(crate) subgroup_control: bool,
    pub(crate) subgroup_operations: vk::SubgroupFeatureFlags,
}

/// A device that nobody has opened yet.
pub(crate) struct Found {
    pub(crate) physical: vk::PhysicalDevice,
    pub(crate) info: DeviceInfo,
    pub(crate) features: Features,
    /// The first family of queues that compute.
    pub(crate) family: Option<u32>,
    /// Bits of its stamps that count.
    pub(crate) stamp_bits: u32,
    pub(crate) portability_subset: bool,
}

const PORTABILITY_SUBSET: &CStr = c"VK_KHR_portability_subset";

impl Found {
    pub(crate) fn new(shared: &Shared, index: usize, physical: vk::PhysicalDevice) -> Self {
        let (entry, raw) = (&shared.entry, &shared.raw);
        let mut v11 = vk::PhysicalDeviceVulkan11Properties::default();
        let mut v12 = vk::PhysicalDeviceVulkan12Properties::default();
        let mut v13 = vk::PhysicalDeviceVulkan13Properties::default();
        let mut all = vk::PhysicalDeviceProperties2::default()
            .push_next(&mut v11)
            .push_next(&mut v12)
            .push_next(&mut v13);
        // SAFETY: the device is the instance's own; drivers leave structures that they do not know as they are.
        unsafe { raw.get_physical_device_properties2(physical, &mut all) };
        let core = all.properties;
        let mut f11 = vk::PhysicalDeviceVulkan11Features::default();
        let mut f12 = vk::PhysicalDeviceVulkan12Features::default();
        let mut f13 = vk::PhysicalDeviceVulkan13Features::default();
        let mut matrix = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default();
        let mut has = vk::PhysicalDeviceFeatures2::default()
            .push_next(&mut f11)
            .push_next(&mut f12)
            .push_next(&mut f13)
            .push_next(&mut matrix);
        // SAFETY: as above.
        unsafe { raw.get_physical_device_features2(physical, &mut has) };
        let core_features = has.features;
        // SAFETY: as above.
        let extensions = unsafe { raw.enumerate_device_extension_properties(physical) }.unwrap_or_default();
        let has_extension = |name: &CStr| extensions.iter().any(|e| e.extension_name_as_c_str() == Ok(name));
        let matrices = matrix.cooperative_matrix == vk::TRUE
            && has_extension(ash::khr::cooperative_matrix::NAME)
            && f12.vulkan_memory_model == vk::TRUE;
        let matrix_units = if matrices {
            let query = ash::khr::cooperative_matrix::Instance::new(entry, raw);
            // SAFETY: the device has the extension.
            let shapes = unsafe { query.get_physical_device_cooperative_matrix_properties(physical) };
            shapes.map(|shapes| units(&shapes)).unwrap_or_default()
        } else {
            [false; 2]
        };
        // SAFETY: the device is the instance's own.
        let (families, memory) = unsafe {
            (
                raw.get_physical_device_queue_family_properties(physical),
                raw.get_physical_device_memory_properties(physical),
            )
        };
        let family = families.iter().position(|f| f.queue_flags.contains(vk::QueueFlags::COMPUTE));
        let stamp_bits = family.and_then(|f| families.get(f)).map_or(0, |f| f.timestamp_valid_bits);
        let heaps = memory.memory_heaps.iter().take(memory.memory_heap_count as usize);
        let own = heaps.filter(|h| h.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL)).map(|h| h.size);
        let limits = core.limits;
        let compute = vk::ShaderStageFlags::COMPUTE;
        let control = f13.subgroup_size_control == vk::TRUE
            && v13.required_subgroup_size_stages.contains(compute)
            && v13.min_subgroup_size > 0;
        let [x, ..] = limits.max_compute_work_group_size;
        // Drivers that do not know a limit leave 0.
        let known = |limit: u64| if limit == 0 { u64::MAX } else { limit };
        let text = |name: Result<&CStr, _>| -> String {
            name.map_or_else(
                |_: std::ffi::FromBytesUntilNulError| String::new(),
                |n| n.to_string_lossy().into_owned(),
            )
        };
        let driver = format!("{} {}", text(v12.driver_name_as_c_str()), text(v12.driver_info_as_c_str()));
        let info = DeviceInfo {
            index,
            name: text(core.device_name_as_c_str()),
            kind: match core.device_type {
                vk::PhysicalDeviceType::DISCRETE_GPU => DeviceKind::Discrete,
                vk::PhysicalDeviceType::INTEGRATED_GPU => DeviceKind::Integrated,
                vk::PhysicalDeviceType::VIRTUAL_GPU => DeviceKind::Virtual,
                vk::PhysicalDeviceType::CPU => DeviceKind::Cpu,
                _ => DeviceKind::Other,
            },
            driver: match driver.trim() {
                "" => format!("driver {:#x}", core.driver_version),
                driver => driver.to_owned(),
            },
            api: Version::of(core.api_version),
            subgroup: v11.subgroup_size,
            subgroups: if control {
                v13.min_subgroup_size..=v13.max_subgroup_size
            } else {
                v11.subgroup_size..=v11.subgroup_size
            },
            memory_bytes: own.max().unwrap_or(0),
            max_buffer_bytes: u64::from(limits.max_storage_buffer_range)
                .min(known(v11.max_memory_allocation_size))
                .min(known(v13.max_buffer_size)),
            max_workgroup: limits.max_compute_work_group_invocations.min(x),
            max_groups: limits.max_compute_work_group_count,
            max_shared_bytes: limits.max_compute_shared_memory_size.into(),
            max_param_bytes: limits.max_push_constants_size.into(),
            tick_ns: Some(f64::from(limits.timestamp_period)).filter(|&ns| ns > 0.0 && stamp_bits > 0),
            has_dot_instruction: v13.integer_dot_product4x8_bit_packed_signed_accelerated == vk::TRUE,
            matrix_units,
        };
        let features = Features {
            int16: core_features.shader_int16 == vk::TRUE,
            int8: f12.shader_int8 == vk::TRUE,
            float16: f12.shader_float16 == vk::TRUE,
            storage16: f11.storage_buffer16_bit_access == vk::TRUE,
            storage8: f12.storage_buffer8_bit_access == vk::TRUE,
            dot: f13.shader_integer_dot_product == vk::TRUE,
            memory_model: f12.vulkan_memory_model == vk::TRUE,
            memory_model_device: f12.vulkan_memory_model_device_scope == vk::TRUE,
            matrices,
            full_subgroups: f13.compute_full_subgroups == vk::TRUE,
            subgroup_control: control,
            subgroup_operations: if v11.subgroup_supported_stages.contains(compute) {
                v11.subgroup_supported_operations
            } else {
                vk::SubgroupFeatureFlags::empty()
            },
        };
        let family = family.and_then(|f| u32::try_from(f).ok());
        let portability_subset = has_extension(PORTABILITY_SUBSET);
        Self { physical, info, features, family, stamp_bits, portability_subset }
    }

    /// The extensions that its kernels may use, and the one that whoever has it must enable.
    pub(crate) fn extensions(&self) -> Vec<&'static CStr> {
        let matrix = self.features.matrices.then_some(ash::khr::cooperative_matrix::NAME);
        let subset = self.portability_subset.then_some(PORTABILITY_SUBSET);
        matrix.into_iter().chain(subset).collect()
    }
}

/// Whether 16 × 16 × 16 is among the shapes: of i8 into i32, of f16 into f32.
fn units(shapes: &[vk::CooperativeMatrixPropertiesKHR<'_>]) -> [bool; 2] {
    let (i8_, i32_) = (vk::ComponentTypeKHR::SINT8, vk::ComponentTypeKHR::SINT32);
    let (f16_, f32_) = (vk::ComponentTypeKHR::FLOAT16, vk::ComponentTypeKHR::FLOAT32);
    [(i8_, i32_), (f16_, f32_)].map(|(factor, sum)| {
        shapes.iter().any(|s| {
            [s.m_size, s.n_size, s.k_size] == [16; 3]
                && s.scope == vk::ScopeKHR::SUBGROUP
                && [s.a_type, s.b_type] == [factor; 2]
                && [s.c_type, s.result_type] == [sum; 2]
        })
    })
}
