//! Runs SPIR-V on a Vulkan device: on machines without a GPU, Mesa's lavapipe. Validation layers are on where the machine has them, and
//! whatever they say fails the test.

use std::ffi::{CStr, c_void};
use std::process::Command;
use std::sync::Mutex;

use ash::vk;
use hanzo_fusion::kernel::emit::spirv;
use hanzo_fusion::kernel::interpret::BufferData;

use super::Case;

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
    /// Lanes of its subgroups.
    pub(crate) subgroup: u32,
}

impl Vulkan {
    /// The first software device, or the first device at all; `None` where the machine has none, which `HANZO_REQUIRE=all` does not forgive.
    pub(crate) fn new() -> Option<Self> {
        // SAFETY: the loader's own library, and calls in the order that Vulkan asks for.
        let found = unsafe { Self::open() };
        if found.is_none() {
            let required = std::env::var("HANZO_REQUIRE").is_ok_and(|v| v == "all");
            assert!(!required, "HANZO_REQUIRE=all, but there is no Vulkan device (Mesa's lavapipe will do)");
            println!("skipped: no Vulkan device was found");
        }
        found
    }

    unsafe fn open() -> Option<Self> {
        let entry = unsafe { ash::Entry::load() }.ok()?;
        let layers = unsafe { entry.enumerate_instance_layer_properties() }.unwrap();
        let validation = layers.iter().any(|l| l.layer_name_as_c_str() == Ok(VALIDATION));
        let app = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_3);
        let (mut layer_names, mut extensions) = (vec![], vec![]);
        if validation {
            layer_names.push(VALIDATION.as_ptr());
            extensions.push(ash::ext::debug_utils::NAME.as_ptr());
        } else {
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
        devices.sort_by_key(|&d| {
            let kind = unsafe { instance.get_physical_device_properties(d) }.device_type;
            kind != vk::PhysicalDeviceType::CPU
        });
        let physical = *devices.first()?;
        let mut v11 = vk::PhysicalDeviceVulkan11Properties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut v11);
        unsafe { instance.get_physical_device_properties2(physical, &mut properties) };
        let subgroup = v11.subgroup_size;
        let priorities = [1.0];
        let queues =
            [vk::DeviceQueueCreateInfo::default().queue_family_index(0).queue_priorities(&priorities)];
        let features = vk::PhysicalDeviceFeatures::default().shader_int16(true);
        let mut v11 = vk::PhysicalDeviceVulkan11Features::default().storage_buffer16_bit_access(true);
        let mut v12 =
            vk::PhysicalDeviceVulkan12Features::default().storage_buffer8_bit_access(true).shader_int8(true);
        let mut v13 = vk::PhysicalDeviceVulkan13Features::default()
            .shader_integer_dot_product(true)
            .subgroup_size_control(true)
            .compute_full_subgroups(true);
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_features(&features)
            .push_next(&mut v11)
            .push_next(&mut v12)
            .push_next(&mut v13);
        let device = unsafe { instance.create_device(physical, &info, None) }.unwrap();
        let queue = unsafe { device.get_device_queue(0, 0) };
        Some(Self { _entry: entry, physical, instance, device, queue, subgroup })
    }

    /// The buffers after a run.
    pub(crate) fn run(&self, case: &Case) -> Vec<BufferData> {
        let words = spirv::module(&case.kernel).unwrap_or_else(|e| panic!("{e}"));
        validate(&case.kernel.name, &words);
        assert_eq!(case.kernel.subgroup, self.subgroup);
        // SAFETY: every handle is made here from valid ones, used once, and destroyed after the queue is idle.
        let out = unsafe { self.launch(case, &words) };
        let complaints = std::mem::take(&mut *COMPLAINTS.lock().unwrap());
        assert!(complaints.is_empty(), "{}: {}", case.kernel.name, complaints.join("\n"));
        out
    }

    unsafe fn launch(&self, case: &Case, words: &[u32]) -> Vec<BufferData> {
        let d = &self.device;
        let mut contents: Vec<(Vec<u8>, usize)> = Vec::new();
        for (data, decl) in case.buffers.iter().zip(&case.kernel.buffers) {
            let n = decl.elem.bytes();
            let bytes = data.words.iter().flat_map(|w| w.unwrap_or(0xdead_beef).to_le_bytes()[..n].to_vec());
            contents.push((bytes.collect(), n));
        }
        for table in &case.kernel.tables {
            contents.push((table.words.iter().flat_map(|w| w.to_le_bytes()).collect(), 4));
        }
        unsafe {
            let buffers: Vec<_> = contents.iter().map(|(bytes, _)| self.buffer(bytes)).collect();
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
            let pool = d.create_descriptor_pool(&info, None).unwrap();
            let layouts = [set_layout];
            let info = vk::DescriptorSetAllocateInfo::default().descriptor_pool(pool).set_layouts(&layouts);
            let set = d.allocate_descriptor_sets(&info).unwrap()[0];
            let infos: Vec<_> = buffers
                .iter()
                .map(|b| [vk::DescriptorBufferInfo::default().buffer(b.0).range(vk::WHOLE_SIZE)])
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
            let params: Vec<u8> = case.params.iter().flat_map(|p| p.to_le_bytes()).collect();
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
            let command_pool = d.create_command_pool(&vk::CommandPoolCreateInfo::default(), None).unwrap();
            let info =
                vk::CommandBufferAllocateInfo::default().command_pool(command_pool).command_buffer_count(1);
            let command = d.allocate_command_buffers(&info).unwrap()[0];
            d.begin_command_buffer(command, &vk::CommandBufferBeginInfo::default()).unwrap();
            d.cmd_bind_pipeline(command, vk::PipelineBindPoint::COMPUTE, pipeline);
            d.cmd_bind_descriptor_sets(command, vk::PipelineBindPoint::COMPUTE, layout, 0, &[set], &[]);
            if !params.is_empty() {
                d.cmd_push_constants(command, layout, vk::ShaderStageFlags::COMPUTE, 0, &params);
            }
            d.cmd_dispatch(command, case.grid[0], case.grid[1], case.grid[2]);
            let barrier = [vk::MemoryBarrier::default()
                .src_access_mask(vk::AccessFlags::SHADER_WRITE)
                .dst_access_mask(vk::AccessFlags::HOST_READ)];
            d.cmd_pipeline_barrier(
                command,
                vk::PipelineStageFlags::COMPUTE_SHADER,
                vk::PipelineStageFlags::HOST,
                vk::DependencyFlags::empty(),
                &barrier,
                &[],
                &[],
            );
            d.end_command_buffer(command).unwrap();
            let commands = [command];
            let submit = [vk::SubmitInfo::default().command_buffers(&commands)];
            d.queue_submit(self.queue, &submit, vk::Fence::null()).unwrap();
            d.queue_wait_idle(self.queue).unwrap();
            let out = buffers.iter().zip(&contents).take(case.buffers.len()).map(|(b, (bytes, n))| {
                let mapped = std::slice::from_raw_parts(b.2, bytes.len());
                let words = mapped.chunks_exact(*n).map(|c| {
                    let mut word = [0; 4];
                    word[..*n].copy_from_slice(c);
                    Some(u32::from_le_bytes(word))
                });
                BufferData { words: words.collect() }
            });
            let out = out.collect();
            d.destroy_command_pool(command_pool, None);
            d.destroy_pipeline(pipeline, None);
            d.destroy_shader_module(module, None);
            d.destroy_pipeline_layout(layout, None);
            d.destroy_descriptor_pool(pool, None);
            d.destroy_descriptor_set_layout(set_layout, None);
            for (buffer, memory, _) in buffers {
                d.destroy_buffer(buffer, None);
                d.free_memory(memory, None);
            }
            out
        }
    }

    /// A buffer with these contents, mapped.
    unsafe fn buffer(&self, bytes: &[u8]) -> (vk::Buffer, vk::DeviceMemory, *mut u8) {
        let d = &self.device;
        unsafe {
            let info = vk::BufferCreateInfo::default()
                .size(bytes.len().next_multiple_of(16).max(16) as u64)
                .usage(vk::BufferUsageFlags::STORAGE_BUFFER);
            let buffer = d.create_buffer(&info, None).unwrap();
            let needs = d.get_buffer_memory_requirements(buffer);
            let types = self.instance.get_physical_device_memory_properties(self.physical);
            let wanted = vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
            let index = (0..types.memory_type_count)
                .find(|&i| {
                    let flags = types.memory_types[i as usize].property_flags;
                    needs.memory_type_bits >> i & 1 == 1 && flags.contains(wanted)
                })
                .unwrap();
            let info = vk::MemoryAllocateInfo::default().allocation_size(needs.size).memory_type_index(index);
            let memory = d.allocate_memory(&info, None).unwrap();
            d.bind_buffer_memory(buffer, memory, 0).unwrap();
            let mapped = d.map_memory(memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty()).unwrap();
            let mapped = mapped.cast::<u8>();
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), mapped, bytes.len());
            (buffer, memory, mapped)
        }
    }
}

impl Drop for Vulkan {
    fn drop(&mut self) {
        // SAFETY: nothing runs any more. The messenger goes with its instance.
        unsafe { self.device.destroy_device(None) };
    }
}

/// Runs spirv-val on a module, where the machine has it.
fn validate(name: &str, words: &[u32]) {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.spv"));
    std::fs::write(&path, words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>()).unwrap();
    match Command::new("spirv-val").args(["--target-env", "vulkan1.3"]).arg(&path).output() {
        Ok(out) => assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stdout)),
        Err(_) => {
            let required = std::env::var("HANZO_REQUIRE").is_ok_and(|v| v == "all");
            assert!(!required, "HANZO_REQUIRE=all, but there is no spirv-val");
        }
    }
}
