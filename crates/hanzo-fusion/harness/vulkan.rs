//! A Vulkan device that runs kernels: the proofs' (on machines without a GPU, Mesa's lavapipe) and the benches'. Belongs to neither the library nor
//! the binary: tests and benches include it by its path. Validation layers are on where the machine has them and whoever opens the device asks.

#![allow(dead_code)]

use std::ffi::{CStr, c_void};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ash::vk;
use hanzo_fusion::kernel::Kernel;
use hanzo_fusion::kernel::emit::spirv;
use hanzo_fusion::kernel::interpret::BufferData;

const VALIDATION: &CStr = c"VK_LAYER_KHRONOS_validation";

/// What the validation layers said.
static COMPLAINTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

unsafe extern "system" fn heard(
    _severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _kind: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    _user: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the loader passes a valid pointer whose message is a C string.
    let text = unsafe { CStr::from_ptr((*data).p_message) };
    COMPLAINTS.lock().unwrap().push(text.to_string_lossy().into_owned());
    vk::FALSE
}

/// A device.
pub(crate) struct Vulkan {
    _entry: ash::Entry,
    physical: vk::PhysicalDevice,
    instance: ash::Instance,
    device: ash::Device,
    queue: vk::Queue,
    /// As its driver calls it.
    pub(crate) name: String,
    /// Whether it is a CPU under a driver.
    pub(crate) software: bool,
    /// Lanes of its subgroups.
    pub(crate) subgroup: u32,
    /// Whether its subgroups multiply matrices of 16 × 16 × 16: of i8 into i32, of f16 into f32.
    pub(crate) units: [bool; 2],
}

/// Which device is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which<'a> {
    /// The first software device, or the first at all: the same on most machines.
    Software,
    /// The first whose name contains this, in any case; real ones before software.
    Named(&'a str),
}

impl Vulkan {
    /// `None` where the machine has no such device.
    pub(crate) fn open(which: Which<'_>, validate: bool) -> Option<Self> {
        // SAFETY: the loader's own library, and calls in the order that Vulkan asks for.
        unsafe { Self::open_unsafe(which, validate) }
    }

    unsafe fn open_unsafe(which: Which<'_>, validate: bool) -> Option<Self> {
        let entry = unsafe { ash::Entry::load() }.ok()?;
        let layers = unsafe { entry.enumerate_instance_layer_properties() }.unwrap();
        let validation = validate && layers.iter().any(|l| l.layer_name_as_c_str() == Ok(VALIDATION));
        let app = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_3);
        let (mut layer_names, mut extensions) = (vec![], vec![]);
        if validation {
            layer_names.push(VALIDATION.as_ptr());
            extensions.push(ash::ext::debug_utils::NAME.as_ptr());
        } else if validate {
            println!("no validation layers on this machine");
        }
        let mut messenger = vk::DebugUtilsMessengerCreateInfoEXT::default()
            .message_severity(
                vk::DebugUtilsMessageSeverityFlagsEXT::ERROR | vk::DebugUtilsMessageSeverityFlagsEXT::WARNING,
            )
            .message_type(
                vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION
                    | vk::DebugUtilsMessageTypeFlagsEXT::PERFORMANCE,
            )
            .pfn_user_callback(Some(heard));
        let mut info = vk::InstanceCreateInfo::default()
            .application_info(&app)
            .enabled_layer_names(&layer_names)
            .enabled_extension_names(&extensions);
        if validation {
            info = info.push_next(&mut messenger);
        }
        let instance = unsafe { entry.create_instance(&info, None) }.ok()?;
        if validation {
            let debug = ash::ext::debug_utils::Instance::new(&entry, &instance);
            unsafe { debug.create_debug_utils_messenger(&messenger, None) }.unwrap();
        }
        let mut devices = unsafe { instance.enumerate_physical_devices() }.ok()?;
        let describe = |d: vk::PhysicalDevice| {
            let properties = unsafe { instance.get_physical_device_properties(d) };
            let name = properties.device_name_as_c_str().unwrap_or_default().to_string_lossy().into_owned();
            (name, properties.device_type == vk::PhysicalDeviceType::CPU)
        };
        let (physical, (name, software)) = match which {
            Which::Software => {
                devices.sort_by_key(|&d| !describe(d).1);
                devices.into_iter().map(|d| (d, describe(d))).next()?
            }
            Which::Named(part) => {
                devices.sort_by_key(|&d| describe(d).1);
                let part = part.to_lowercase();
                let mut all = devices.into_iter().map(|d| (d, describe(d)));
                all.find(|(_, (name, _))| name.to_lowercase().contains(&part))?
            }
        };
        let mut v11 = vk::PhysicalDeviceVulkan11Properties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut v11);
        unsafe { instance.get_physical_device_properties2(physical, &mut properties) };
        let subgroup = v11.subgroup_size;
        let names = unsafe { instance.enumerate_device_extension_properties(physical) }.unwrap_or_default();
        let matrix = ash::khr::cooperative_matrix::NAME;
        let query = ash::khr::cooperative_matrix::Instance::new(&entry, &instance);
        let shapes = if names.iter().any(|e| e.extension_name_as_c_str() == Ok(matrix)) {
            unsafe { query.get_physical_device_cooperative_matrix_properties(physical) }.unwrap_or_default()
        } else {
            vec![]
        };
        let (i8_, i32_) = (vk::ComponentTypeKHR::SINT8, vk::ComponentTypeKHR::SINT32);
        let (f16_, f32_) = (vk::ComponentTypeKHR::FLOAT16, vk::ComponentTypeKHR::FLOAT32);
        let units = [(i8_, i32_), (f16_, f32_)].map(|(factor, sum)| {
            shapes.iter().any(|s| {
                [s.m_size, s.n_size, s.k_size] == [16; 3]
                    && s.scope == vk::ScopeKHR::SUBGROUP
                    && [s.a_type, s.b_type] == [factor; 2]
                    && [s.c_type, s.result_type] == [sum; 2]
            })
        });
        let any_units = units.contains(&true);
        let priorities = [1.0];
        let queues =
            [vk::DeviceQueueCreateInfo::default().queue_family_index(0).queue_priorities(&priorities)];
        let features = vk::PhysicalDeviceFeatures::default().shader_int16(true);
        let mut v11 = vk::PhysicalDeviceVulkan11Features::default().storage_buffer16_bit_access(true);
        let mut v12 = vk::PhysicalDeviceVulkan12Features::default()
            .storage_buffer8_bit_access(true)
            .shader_int8(true)
            .shader_float16(units[1])
            .vulkan_memory_model(any_units);
        let mut matrices = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default().cooperative_matrix(true);
        let device_extensions = [matrix.as_ptr()];
        let mut v13 = vk::PhysicalDeviceVulkan13Features::default()
            .shader_integer_dot_product(true)
            .subgroup_size_control(true)
            .compute_full_subgroups(true);
        let mut info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_features(&features)
            .push_next(&mut v11)
            .push_next(&mut v12)
            .push_next(&mut v13);
        if any_units {
            info = info.enabled_extension_names(&device_extensions).push_next(&mut matrices);
        }
        let device = unsafe { instance.create_device(physical, &info, None) }.unwrap();
        let queue = unsafe { device.get_device_queue(0, 0) };
        Some(Self { _entry: entry, physical, instance, device, queue, name, software, subgroup, units })
    }

    /// What the validation layers said since the last time.
    pub(crate) fn complaints(&self) -> Vec<String> {
        std::mem::take(&mut *COMPLAINTS.lock().unwrap())
    }

    /// A launch of `kernel` with its buffers in the device's own memory. `params` are the 32 bits of each.
    pub(crate) fn prepare(
        &self,
        kernel: &Kernel,
        grid: [u32; 3],
        buffers: &[BufferData],
        params: &[u32],
    ) -> Resident<'_> {
        let words = spirv::module(kernel).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(kernel.subgroup, self.subgroup, "{}: lanes of a subgroup", kernel.name);
        let mut contents: Vec<(Vec<u8>, usize)> = Vec::new();
        for (data, decl) in buffers.iter().zip(&kernel.buffers) {
            let n = decl.elem.bytes();
            // What nobody wrote yet is told by a value that no test expects.
            let bytes = data.words.iter().flat_map(|w| w.unwrap_or(0xdead_beef).to_le_bytes()[..n].to_vec());
            contents.push((bytes.collect(), n));
        }
        for table in &kernel.tables {
            contents.push((table.words.iter().flat_map(|w| w.to_le_bytes()).collect(), 4));
        }
        // SAFETY: every handle is made here from valid ones, used in order, and destroyed by `Resident` when the queue is idle.
        unsafe { self.resident(&words, grid, contents, params) }
    }

    unsafe fn resident(
        &self,
        words: &[u32],
        grid: [u32; 3],
        contents: Vec<(Vec<u8>, usize)>,
        params: &[u32],
    ) -> Resident<'_> {
        let d = &self.device;
        unsafe {
            let buffers: Vec<_> = contents.iter().map(|(bytes, _)| self.upload(bytes)).collect();
            let bindings: Vec<_> = (0..buffers.len() as u32)
                .map(|i| {
                    vk::DescriptorSetLayoutBinding::default()
                        .binding(i)
                        .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                        .descriptor_count(1)
                        .stage_flags(vk::ShaderStageFlags::COMPUTE)
                })
                .collect();
            let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
            let set_layout = d.create_descriptor_set_layout(&info, None).unwrap();
            let sizes = [vk::DescriptorPoolSize::default()
                .ty(vk::DescriptorType::STORAGE_BUFFER)
                .descriptor_count(buffers.len().max(1) as u32)];
            let info = vk::DescriptorPoolCreateInfo::default().max_sets(1).pool_sizes(&sizes);
            let descriptors = d.create_descriptor_pool(&info, None).unwrap();
            let layouts = [set_layout];
            let info =
                vk::DescriptorSetAllocateInfo::default().descriptor_pool(descriptors).set_layouts(&layouts);
            let set = d.allocate_descriptor_sets(&info).unwrap()[0];
            let infos: Vec<_> = buffers
                .iter()
                .map(|b| [vk::DescriptorBufferInfo::default().buffer(b.buffer).range(vk::WHOLE_SIZE)])
                .collect();
            let writes: Vec<_> = infos
                .iter()
                .enumerate()
                .map(|(i, info)| {
                    vk::WriteDescriptorSet::default()
                        .dst_set(set)
                        .dst_binding(i as u32)
                        .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                        .buffer_info(info)
                })
                .collect();
            d.update_descriptor_sets(&writes, &[]);
            let params: Vec<u8> = params.iter().flat_map(|p| p.to_le_bytes()).collect();
            let ranges = [vk::PushConstantRange::default()
                .stage_flags(vk::ShaderStageFlags::COMPUTE)
                .size(params.len() as u32)];
            let ranges = if params.is_empty() { &ranges[..0] } else { &ranges };
            let info =
                vk::PipelineLayoutCreateInfo::default().set_layouts(&layouts).push_constant_ranges(ranges);
            let layout = d.create_pipeline_layout(&info, None).unwrap();
            let module =
                d.create_shader_module(&vk::ShaderModuleCreateInfo::default().code(words), None).unwrap();
            let stage = vk::PipelineShaderStageCreateInfo::default()
                .stage(vk::ShaderStageFlags::COMPUTE)
                .flags(vk::PipelineShaderStageCreateFlags::REQUIRE_FULL_SUBGROUPS)
                .module(module)
                .name(c"main");
            let info = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout)];
            let pipeline = d.create_compute_pipelines(vk::PipelineCache::null(), &info, None).unwrap()[0];
            let elements = contents.iter().map(|(_, n)| *n).collect();
            Resident {
                vulkan: self,
                buffers,
                elements,
                set_layout,
                descriptors,
                set,
                layout,
                module,
                pipeline,
                params,
                grid,
            }
        }
    }

    /// Records, submits, waits; seconds from submission to the end.
    unsafe fn submit(&self, record: impl FnOnce(vk::CommandBuffer)) -> Duration {
        let d = &self.device;
        unsafe {
            let pool = d.create_command_pool(&vk::CommandPoolCreateInfo::default(), None).unwrap();
            let info = vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(1);
            let command = d.allocate_command_buffers(&info).unwrap()[0];
            d.begin_command_buffer(command, &vk::CommandBufferBeginInfo::default()).unwrap();
            record(command);
            d.end_command_buffer(command).unwrap();
            let commands = [command];
            let submit = [vk::SubmitInfo::default().command_buffers(&commands)];
            let start = Instant::now();
            d.queue_submit(self.queue, &submit, vk::Fence::null()).unwrap();
            d.queue_wait_idle(self.queue).unwrap();
            let elapsed = start.elapsed();
            d.destroy_command_pool(pool, None);
            elapsed
        }
    }

    /// A buffer in the device's own memory with these contents.
    unsafe fn upload(&self, bytes: &[u8]) -> Allocation {
        let size = bytes.len().next_multiple_of(16).max(16) as u64;
        let (from, to) = (vk::BufferUsageFlags::TRANSFER_SRC, vk::BufferUsageFlags::TRANSFER_DST);
        unsafe {
            let own = vk::MemoryPropertyFlags::DEVICE_LOCAL;
            let buffer = self.allocate(size, vk::BufferUsageFlags::STORAGE_BUFFER | from | to, own);
            let staging = self.allocate(size, from, HOST);
            let flags = vk::MemoryMapFlags::empty();
            let mapped = self.device.map_memory(staging.memory, 0, vk::WHOLE_SIZE, flags).unwrap();
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), mapped.cast::<u8>(), bytes.len());
            self.copy(&staging, &buffer);
            self.free(&staging);
            buffer
        }
    }

    /// The first `len` bytes of a buffer.
    unsafe fn download(&self, buffer: &Allocation, len: usize) -> Vec<u8> {
        unsafe {
            let staging = self.allocate(buffer.size, vk::BufferUsageFlags::TRANSFER_DST, HOST);
            self.copy(buffer, &staging);
            let flags = vk::MemoryMapFlags::empty();
            let mapped = self.device.map_memory(staging.memory, 0, vk::WHOLE_SIZE, flags).unwrap();
            let bytes = std::slice::from_raw_parts(mapped.cast::<u8>(), len).to_vec();
            self.free(&staging);
            bytes
        }
    }

    unsafe fn copy(&self, from: &Allocation, to: &Allocation) {
        let region = [vk::BufferCopy::default().size(from.size)];
        unsafe {
            self.submit(|command| {
                self.device.cmd_copy_buffer(command, from.buffer, to.buffer, &region);
                self.barrier(command);
            });
        }
    }

    /// Whatever was written is seen by whatever follows, the host included.
    unsafe fn barrier(&self, command: vk::CommandBuffer) {
        let written = vk::AccessFlags::SHADER_WRITE | vk::AccessFlags::TRANSFER_WRITE;
        let seen = vk::AccessFlags::SHADER_READ
            | vk::AccessFlags::SHADER_WRITE
            | vk::AccessFlags::TRANSFER_READ
            | vk::AccessFlags::HOST_READ;
        let barrier = [vk::MemoryBarrier::default().src_access_mask(written).dst_access_mask(seen)];
        let work = vk::PipelineStageFlags::COMPUTE_SHADER | vk::PipelineStageFlags::TRANSFER;
        let flags = vk::DependencyFlags::empty();
        let next = work | vk::PipelineStageFlags::HOST;
        unsafe { self.device.cmd_pipeline_barrier(command, work, next, flags, &barrier, &[], &[]) };
    }

    unsafe fn allocate(
        &self,
        size: u64,
        usage: vk::BufferUsageFlags,
        wanted: vk::MemoryPropertyFlags,
    ) -> Allocation {
        let d = &self.device;
        unsafe {
            let info = vk::BufferCreateInfo::default().size(size).usage(usage);
            let buffer = d.create_buffer(&info, None).unwrap();
            let needs = d.get_buffer_memory_requirements(buffer);
            let types = self.instance.get_physical_device_memory_properties(self.physical);
            let index = (0..types.memory_type_count)
                .find(|&i| {
                    let flags = types.memory_types[i as usize].property_flags;
                    needs.memory_type_bits >> i & 1 == 1 && flags.contains(wanted)
                })
                .unwrap();
            let info = vk::MemoryAllocateInfo::default().allocation_size(needs.size).memory_type_index(index);
            let memory = d.allocate_memory(&info, None).unwrap();
            d.bind_buffer_memory(buffer, memory, 0).unwrap();
            Allocation { buffer, memory, size }
        }
    }

    unsafe fn free(&self, a: &Allocation) {
        unsafe {
            self.device.destroy_buffer(a.buffer, None);
            self.device.free_memory(a.memory, None);
        }
    }
}

/// Memory that the host sees.
const HOST: vk::MemoryPropertyFlags = vk::MemoryPropertyFlags::from_raw(
    vk::MemoryPropertyFlags::HOST_VISIBLE.as_raw() | vk::MemoryPropertyFlags::HOST_COHERENT.as_raw(),
);

/// A buffer and its memory.
struct Allocation {
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    size: u64,
}

/// A launch that can be repeated: its operands stay on the device.
pub(crate) struct Resident<'v> {
    vulkan: &'v Vulkan,
    /// Buffers of the kernel, then its constant tables.
    buffers: Vec<Allocation>,
    /// Bytes of each buffer's elements.
    elements: Vec<usize>,
    set_layout: vk::DescriptorSetLayout,
    descriptors: vk::DescriptorPool,
    set: vk::DescriptorSet,
    layout: vk::PipelineLayout,
    module: vk::ShaderModule,
    pipeline: vk::Pipeline,
    params: Vec<u8>,
    grid: [u32; 3],
}

impl Resident<'_> {
    /// Runs it `times` times, one after the other, in one submission with one wait at its end; the time from one to the other.
    pub(crate) fn run(&self, times: u32) -> Duration {
        let d = &self.vulkan.device;
        // SAFETY: the handles are this launch's own, and nothing of it runs when this begins or ends.
        unsafe {
            self.vulkan.submit(|command| {
                let point = vk::PipelineBindPoint::COMPUTE;
                d.cmd_bind_pipeline(command, point, self.pipeline);
                d.cmd_bind_descriptor_sets(command, point, self.layout, 0, &[self.set], &[]);
                if !self.params.is_empty() {
                    let stages = vk::ShaderStageFlags::COMPUTE;
                    d.cmd_push_constants(command, self.layout, stages, 0, &self.params);
                }
                for _ in 0..times {
                    d.cmd_dispatch(command, self.grid[0], self.grid[1], self.grid[2]);
                    self.vulkan.barrier(command);
                }
            })
        }
    }

    /// What buffer `i` holds, `len` elements of it.
    pub(crate) fn read(&self, i: usize, len: usize) -> BufferData {
        let n = self.elements[i];
        // SAFETY: the buffer is at least as large as what was uploaded, and nothing runs.
        let bytes = unsafe { self.vulkan.download(&self.buffers[i], len * n) };
        let words = bytes.chunks_exact(n).map(|c| {
            let mut word = [0; 4];
            word[..n].copy_from_slice(c);
            Some(u32::from_le_bytes(word))
        });
        BufferData { words: words.collect() }
    }
}

impl Drop for Resident<'_> {
    fn drop(&mut self) {
        let d = &self.vulkan.device;
        // SAFETY: nothing of it runs any more.
        unsafe {
            d.destroy_pipeline(self.pipeline, None);
            d.destroy_shader_module(self.module, None);
            d.destroy_pipeline_layout(self.layout, None);
            d.destroy_descriptor_pool(self.descriptors, None);
            d.destroy_descriptor_set_layout(self.set_layout, None);
            self.buffers.iter().for_each(|b| self.vulkan.free(b));
        }
    }
}

impl Drop for Vulkan {
    fn drop(&mut self) {
        // SAFETY: nothing runs any more. The messenger goes with its instance.
        unsafe { self.device.destroy_device(None) };
    }
}
