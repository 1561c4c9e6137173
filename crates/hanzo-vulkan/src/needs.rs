//! What a module asks of a device, read from its words.

use ash::vk;

use crate::find::Found;
use crate::{Program, VulkanError};

const MAGIC: u32 = 0x0723_0203;
const HEADER: usize = 5;
/// SPIR-V 1.6, Vulkan 1.3's.
const NEWEST: u32 = 0x0001_0600;

const OP_EXECUTION_MODE: u32 = 16;
const OP_CAPABILITY: u32 = 17;
const OP_FUNCTION_END: u32 = 56;
const OP_DECORATE: u32 = 71;
const LOCAL_SIZE: u32 = 17;
const BINDING: u32 = 33;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    capabilities: Vec<u32>,
    /// Invocations of a workgroup by axis.
    workgroup: [u32; 3],
    /// One beyond the highest binding.
    bindings: usize,
}

impl Needs {
    /// Of a module.
    ///
    /// # Errors
    /// What keeps it from being one.
    pub(crate) fn of(words: &[u32]) -> Result<Self, String> {
        match words {
            [MAGIC, version, ..] if words.len() > HEADER && *version <= NEWEST => {}
            [MAGIC, version, ..] if words.len() > HEADER => {
                return Err(format!("its SPIR-V has version {version:#x}, newer than Vulkan 1.3 reads"));
            }
            _ => return Err("it is no SPIR-V module".to_owned()),
        }
        let mut needs = Self { capabilities: vec![], workgroup: [0; 3], bindings: 0 };
        let mut rest = words.get(HEADER..).unwrap_or_default();
        let mut last = 0;
        while let Some(&head) = rest.first() {
            let (length, opcode) = ((head >> 16) as usize, head & 0xffff);
            let Some((instruction, tail)) = rest.split_at_checked(length).filter(|_| length > 0) else {
                return Err(format!("its SPIR-V breaks off at word {}", words.len() - rest.len()));
            };
            match (opcode, instruction) {
                (OP_CAPABILITY, [_, capability]) => needs.capabilities.push(*capability),
                (OP_EXECUTION_MODE, [_, _, LOCAL_SIZE, x, y, z]) => needs.workgroup = [*x, *y, *z],
                (OP_DECORATE, [_, _, BINDING, at]) => needs.bindings = needs.bindings.max(*at as usize + 1),
                _ => {}
            }
            (rest, last) = (tail, opcode);
        }
        if last != OP_FUNCTION_END {
            return Err("its SPIR-V breaks off inside a function".to_owned());
        }
        if needs.workgroup.contains(&0) {
            return Err("it does not say how large its workgroups are".to_owned());
        }
        Ok(needs)
    }

    /// Whether the device can run it, in that many workgroups, with so many buffers and bytes of parameters.
    pub(crate) fn check(
        &self,
        program: &Program<'_>,
        found: &Found,
        grid: [u32; 3],
        buffers: usize,
        param_bytes: usize,
    ) -> Result<(), VulkanError> {
        let (info, kernel) = (&found.info, program.name.to_owned());
        let device = info.name.clone();
        for &capability in &self.capabilities {
            match feature(capability, found) {
                Some((_, true)) => {}
                Some((feature, false)) => return Err(VulkanError::Feature { kernel, feature, device }),
                None => {
                    let why =
                        format!("its SPIR-V declares capability {capability}, which nothing here enables");
                    return Err(VulkanError::Module { kernel, why });
                }
            }
        }
        if self.bindings != buffers {
            let why = format!("it binds {} buffers, not {buffers}", self.bindings);
            return Err(VulkanError::Module { kernel, why });
        }
        let workgroup = self.workgroup.iter().try_fold(1u32, |n, &m| n.checked_mul(m)).unwrap_or(u32::MAX);
        let limits = [
            ("invocations a workgroup", workgroup.into(), info.max_workgroup.into()),
            ("bytes of workgroup memory", program.shared_bytes, info.max_shared_bytes),
            ("bytes of parameters", param_bytes as u64, info.max_param_bytes),
        ];
        let axes = ["workgroups along x", "workgroups along y", "workgroups along z"];
        let axes = axes
            .into_iter()
            .zip(grid)
            .zip(info.max_groups)
            .map(|((what, n), most)| (what, n.into(), most.into()));
        for (what, asked, most) in limits.into_iter().chain(axes) {
            if asked > most {
                return Err(VulkanError::Limit { kernel, what, asked, most, device });
            }
        }
        if let Some(asked) = program.subgroup {
            if !info.subgroups.contains(&asked) || !asked.is_power_of_two() {
                let (min, max) = (*info.subgroups.start(), *info.subgroups.end());
                let fixed = min == max;
                return Err(VulkanError::Subgroup { kernel, asked, min, max, fixed, device });
            }
            if !found.features.full_subgroups {
                let feature = "computeFullSubgroups";
                return Err(VulkanError::Feature { kernel, feature, device });
            }
            if workgroup % asked != 0 {
                let why =
                    format!("its workgroups of {workgroup} are no multiple of its subgroups of {asked}");
                return Err(VulkanError::Module { kernel, why });
            }
        }
        Ok(())
    }
}

/// Vulkan's word for what a capability stands for, and whether the device has it; `None` for those that no kernel here uses.
fn feature(capability: u32, found: &Found) -> Option<(&'static str, bool)> {
    let has = &found.features;
    let subgroup = |flags| has.subgroup_operations.contains(flags);
    Some(match capability {
        // Shader.
        1 => ("shaders", true),
        9 => ("shaderFloat16", has.float16),
        22 => ("shaderInt16", has.int16),
        39 => ("shaderInt8", has.int8),
        61 => ("subgroup operations", subgroup(vk::SubgroupFeatureFlags::BASIC)),
        64 => ("subgroup ballots", subgroup(vk::SubgroupFeatureFlags::BALLOT)),
        65 => ("subgroup shuffles", subgroup(vk::SubgroupFeatureFlags::SHUFFLE)),
        4433 => ("storageBuffer16BitAccess", has.storage16),
        4448 => ("storageBuffer8BitAccess", has.storage8),
        5345 => ("vulkanMemoryModel", has.memory_model),
        5346 => ("vulkanMemoryModelDeviceScope", has.memory_model_device),
        6018 | 6019 => ("shaderIntegerDotProduct", has.dot),
        6022 => ("VK_KHR_cooperative_matrix", has.matrices),
        _ => return None,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn module(instructions: &[&[u32]]) -> Vec<u32> {
        let mut words = vec![MAGIC, 0x0001_0300, 0, 10, 0];
        for i in instructions {
            let (op, operands) = i.split_first().unwrap();
            words.push((i.len() as u32) << 16 | op);
            words.extend(operands);
        }
        words.push(1 << 16 | OP_FUNCTION_END);
        words
    }

    #[test]
    fn what_a_module_says_is_read() {
        let size = [OP_EXECUTION_MODE, 4, LOCAL_SIZE, 64, 2, 1];
        let bound = [OP_DECORATE, 9, BINDING, 2];
        let needs = Needs::of(&module(&[&[OP_CAPABILITY, 1], &[OP_CAPABILITY, 22], &size, &bound])).unwrap();
        assert_eq!(needs, Needs { capabilities: vec![1, 22], workgroup: [64, 2, 1], bindings: 3 });
    }

    #[test]
    fn what_is_no_module_is_told_and_never_read_beyond() {
        let size = [OP_EXECUTION_MODE, 4, LOCAL_SIZE, 64, 1, 1];
        let good = module(&[&[OP_CAPABILITY, 1], &size]);
        for (words, part) in [
            (vec![], "no SPIR-V"),
            (vec![MAGIC], "no SPIR-V"),
            (vec![1, 2, 3, 4, 5, 6], "no SPIR-V"),
            (good[..good.len() - 1].to_vec(), "breaks off inside a function"),
            (good[..good.len() - 2].to_vec(), "breaks off at word 7"),
            (module(&[&[OP_CAPABILITY, 1]]), "how large its workgroups"),
            (module(&[&[OP_EXECUTION_MODE, 4, LOCAL_SIZE, 64, 0, 1]]), "how large its workgroups"),
            ([&good[..], &[0]].concat(), "breaks off"),
            ([&[MAGIC, 0x0001_0700], &good[2..]].concat(), "0x10700"),
        ] {
            let why = Needs::of(&words).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }
}
