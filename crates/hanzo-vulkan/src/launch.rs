//! A kernel with its operands, ready to be run.
#![allow(unsafe_code)]

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ash::vk;

use crate::device::Opened;
use crate::needs::Needs;
use crate::{Buffer, Vulkan, VulkanError};

/// A kernel as SPIR-V. Its entry point is `main`; its buffers are the bindings of set 0, its parameters push constants.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// What messages call it.
    pub name: &'a str,
    /// The module; it is trusted (see the crate's page).
    pub words: &'a [u32],
    /// Lanes of the subgroups that it counts on; `None` where it uses none.
    pub subgroup: Option<u32>,
    /// Bytes of its workgroup memory.
    pub shared_bytes: u64,
}

/// How long a submission took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From the submission to the end of the wait for it, by the host's clock.
    pub host: Duration,
    /// Between the stamps before and after its work, by the device's clock, where it has one.
    pub device: Option<Duration>,
}

/// A launch that can be repeated: pipeline, operands and parameters are bound.
#[derive(Debug)]
pub struct Launch(Made);

struct Made {
    device: Arc<Opened>,
    buffers: Vec<Buffer>,
    set_layout: vk::DescriptorSetLayout,
    pool: vk::DescriptorPool,
    set: vk::DescriptorSet,
    layout: vk::PipelineLayout,
    module: vk::ShaderModule,
    pipeline: vk::Pipeline,
    params: Vec<u8>,
    grid: [u32; 3],
}

impl fmt::Debug for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Made")
            .field("grid", &self.grid)
            .field("buffers", &self.buffers)
            .finish_non_exhaustive()
    }
}

impl Vulkan {
    /// A launch of `program` in `grid` workgroups, with its buffers in the order of their bindings and the 32 bits of each of its parameters.
    ///
    /// # Errors
    /// What the device lacks for it ([`VulkanError::Feature`], [`VulkanError::Limit`], [`VulkanError::Subgroup`]), [`VulkanError::Module`] for words
    /// that are no module or bind other buffers, and faults of the driver.
    pub fn launch(
        &self,
        program: &Program<'_>,
        grid: [u32; 3],
        buffers: &[Buffer],
        params: &[u32],
    ) -> Result<Launch, VulkanError> {
        let module = |why: String| VulkanError::Module { kernel: program.name.to_owned(), why };
        let params: Vec<u8> = params.iter().flat_map(|p| p.to_le_bytes()).collect();
        let needs = Needs::of(program.words).map_err(module)?;
        needs.check(program, &self.0.found, grid, buffers.len(), params.len())?;
        if buffers.iter().any(|b| !Arc::ptr_eq(&b.0.device, &self.0)) {
            return Err(module("one of its buffers is another device's".to_owned()));
        }
        let mut made = Made {
            device: Arc::clone(&self.0),
            buffers: buffers.to_vec(),
            set_layout: vk::DescriptorSetLayout::null(),
            pool: vk::DescriptorPool::null(),
            set: vk::DescriptorSet::null(),
            layout: vk::PipelineLayout::null(),
            module: vk::ShaderModule::null(),
            pipeline: vk::Pipeline::null(),
            params,
            grid,
        };
        // SAFETY: every handle is made here from valid ones of this device; what was made is destroyed by `Made` in any case.
        unsafe {
            made.bind()?;
            made.compile(program)?;
        }
        Ok(Launch(made))
    }
}

impl Made {
    /// Descriptors of the buffers.
    unsafe fn bind(&mut self) -> Result<(), VulkanError> {
        let (device, n) = (Arc::clone(&self.device), self.buffers.len() as u32);
        let d = &device.raw;
        let failed = |source| device.failed("binding buffers")(source);
        unsafe {
            let storage = vk::DescriptorType::STORAGE_BUFFER;
            let bindings: Vec<_> = (0..n)
                .map(|i| {
                    let stage = vk::ShaderStageFlags::COMPUTE;
                    let binding =
                        vk::DescriptorSetLayoutBinding::default().binding(i).descriptor_type(storage);
                    binding.descriptor_count(1).stage_flags(stage)
                })
                .collect();
            let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
            self.set_layout = d.create_descriptor_set_layout(&info, None).map_err(failed)?;
            let sizes = [vk::DescriptorPoolSize::default().ty(storage).descriptor_count(n.max(1))];
            let info = vk::DescriptorPoolCreateInfo::default().max_sets(1).pool_sizes(&sizes);
            self.pool = d.create_descriptor_pool(&info, None).map_err(failed)?;
            let layouts = [self.set_layout];
            let info =
                vk::DescriptorSetAllocateInfo::default().descriptor_pool(self.pool).set_layouts(&layouts);
            let sets = d.allocate_descriptor_sets(&info).map_err(failed)?;
            self.set = sets.first().copied().unwrap_or_default();
            let infos: Vec<_> = self
                .buffers
                .iter()
                .map(|b| [vk::DescriptorBufferInfo::default().buffer(b.0.buffer).range(vk::WHOLE_SIZE)])
                .collect();
            let writes: Vec<_> = infos
                .iter()
                .zip(0..)
                .map(|(info, i)| {
                    let write = vk::WriteDescriptorSet::default().dst_set(self.set).dst_binding(i);
                    write.descriptor_type(storage).buffer_info(info)
                })
                .collect();
            d.update_descriptor_sets(&writes, &[]);
        }
        Ok(())
    }

    /// The pipeline.
    unsafe fn compile(&mut self, program: &Program<'_>) -> Result<(), VulkanError> {
        let device = Arc::clone(&self.device);
        let d = &device.raw;
        let failed = |source| device.failed("compiling a kernel")(source);
        let compute = vk::ShaderStageFlags::COMPUTE;
        let ranges = [vk::PushConstantRange::default().stage_flags(compute).size(self.params.len() as u32)];
        let ranges = if self.params.is_empty() { &[][..] } else { &ranges };
        let layouts = [self.set_layout];
        let info = vk::PipelineLayoutCreateInfo::default().set_layouts(&layouts).push_constant_ranges(ranges);
        unsafe {
            self.layout = d.create_pipeline_layout(&info, None).map_err(failed)?;
            let info = vk::ShaderModuleCreateInfo::default().code(program.words);
            self.module = d.create_shader_module(&info, None).map_err(failed)?;
            let mut stage =
                vk::PipelineShaderStageCreateInfo::default().stage(compute).module(self.module).name(c"main");
            let mut width = vk::PipelineShaderStageRequiredSubgroupSizeCreateInfo::default();
            if let Some(lanes) = program.subgroup {
                stage = stage.flags(vk::PipelineShaderStageCreateFlags::REQUIRE_FULL_SUBGROUPS);
                if lanes != device.found.info.subgroup {
                    width = width.required_subgroup_size(lanes);
                    stage = stage.push_next(&mut width);
                }
            }
            let info = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(self.layout)];
            let made = d.create_compute_pipelines(vk::PipelineCache::null(), &info, None);
            let pipelines = made.map_err(|(some, source)| {
                some.into_iter().for_each(|p| d.destroy_pipeline(p, None));
                failed(source)
            })?;
            self.pipeline = pipelines.first().copied().unwrap_or_default();
        }
        Ok(())
    }
}

impl Launch {
    /// Other parameters from now on, as many as before.
    ///
    /// # Errors
    /// [`VulkanError::Module`] for more or fewer.
    pub fn set_params(&mut self, params: &[u32]) -> Result<(), VulkanError> {
        let bytes: Vec<u8> = params.iter().flat_map(|p| p.to_le_bytes()).collect();
        if bytes.len() != self.0.params.len() {
            let why = format!("{} parameters in the place of {}", params.len(), self.0.params.len() / 4);
            return Err(VulkanError::Module { kernel: "a launch".to_owned(), why });
        }
        self.0.params = bytes;
        Ok(())
    }

    /// Runs it `times` times, one after the other, in one submission with one wait at its end.
    ///
    /// # Errors
    /// Faults of the device: it may be lost.
    pub fn run(&self, times: u32) -> Result<Timing, VulkanError> {
        let made = &self.0;
        let (device, d) = (&made.device, &made.device.raw);
        let [x, y, z] = made.grid;
        // SAFETY: the handles are this launch's own and live until the wait is over.
        unsafe {
            device.submit(|command| {
                let point = vk::PipelineBindPoint::COMPUTE;
                d.cmd_bind_pipeline(command, point, made.pipeline);
                d.cmd_bind_descriptor_sets(command, point, made.layout, 0, &[made.set], &[]);
                if !made.params.is_empty() {
                    let stages = vk::ShaderStageFlags::COMPUTE;
                    d.cmd_push_constants(command, made.layout, stages, 0, &made.params);
                }
                for _ in 0..times {
                    d.cmd_dispatch(command, x, y, z);
                    device.barrier(command);
                }
            })
        }
    }

    /// Its buffers, in the order of their bindings.
    pub fn buffers(&self) -> &[Buffer] {
        &self.0.buffers
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let d = &self.device.raw;
        // SAFETY: nothing of it runs any more: submissions are waited for. Null handles are allowed.
        unsafe {
            d.destroy_pipeline(self.pipeline, None);
            d.destroy_shader_module(self.module, None);
            d.destroy_pipeline_layout(self.layout, None);
            d.destroy_descriptor_pool(self.pool, None);
            d.destroy_descriptor_set_layout(self.set_layout, None);
        }
    }
}
