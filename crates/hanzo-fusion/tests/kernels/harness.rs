//! Runs launches everywhere and compares what they wrote.

use hanzo_fusion::kernel::interpret::{BufferData, FmaRounding};
use hanzo_fusion::kernel::opt::optimize;
use hanzo_fusion::kernel::{Access, Kernel};
use hanzo_fusion::kernels::layout::{Layout, Planes};
use hanzo_quant::canonical::QuantizedRow;
use hanzo_quant::{Format, QuantType};

pub(crate) use crate::common::{Case, Rng, same};
use crate::common::{dialects_agree, vulkan::Vulkan};

/// Subgroup widths of the interpreter's runs.
pub(crate) const WIDTHS: [u32; 3] = [8, 32, 64];

/// A launch and what it must leave in some of its buffers.
pub(crate) struct Check {
    pub(crate) case: Case,
    /// Buffer by name, and its words; `None` for what may be anything.
    pub(crate) want: Vec<(&'static str, Vec<Option<u32>>)>,
}

impl Check {
    /// Binds `buffers` and `params` by name; `want` as well.
    pub(crate) fn new(
        kernel: &Kernel,
        grid: [u32; 3],
        buffers: Vec<(&'static str, BufferData)>,
        params: &[(&'static str, u32)],
        want: Vec<(&'static str, Vec<u32>)>,
    ) -> Self {
        let mut bound = Vec::new();
        for decl in &kernel.buffers {
            let found = buffers.iter().find(|(name, _)| *name == decl.name);
            bound.push(found.unwrap_or_else(|| panic!("no buffer `{}`", decl.name)).1.clone());
        }
        assert_eq!(bound.len(), buffers.len(), "{}: buffers that it has not", kernel.name);
        let value = |name: &str| params.iter().find(|(n, _)| *n == name).map(|&(_, v)| v);
        let params = kernel
            .params
            .iter()
            .map(|p| value(&p.name).unwrap_or_else(|| panic!("no parameter `{}`", p.name)));
        let case = Case { params: params.collect(), kernel: optimize(kernel), grid, buffers: bound };
        let want = want.into_iter().map(|(name, words)| (name, words.into_iter().map(Some).collect()));
        Self { case, want: want.collect() }
    }

    /// How many words differ from what is wanted by more than `ulps`, and the first of them: buffer, index, wanted, got.
    #[allow(clippy::type_complexity)]
    pub(crate) fn bad(
        &self,
        got: &[BufferData],
        ulps: u32,
    ) -> (usize, Option<(&'static str, usize, f32, Option<f32>)>) {
        let mut bad = Vec::new();
        for &(name, ref want) in &self.want {
            let at = self.case.kernel.buffers.iter().position(|b| b.name == name).unwrap();
            let got = &got[at].words;
            assert_eq!(got.len(), want.len(), "{} `{name}`", self.case.kernel.name);
            for (i, (want, got)) in want.iter().zip(got).enumerate() {
                if let Some(want) = *want
                    && got.is_none_or(|got| !near(want, got, ulps))
                {
                    bad.push((name, i, f32::from_bits(want), got.map(f32::from_bits)));
                }
            }
        }
        (bad.len(), bad.first().copied())
    }
}

/// Equal, both NaN, both zero, or floats at most `ulps` apart.
fn near(a: u32, b: u32, ulps: u32) -> bool {
    // Neighbouring floats of one sign have neighbouring bits.
    a.abs_diff(b) <= ulps || same(a, b) || (a | b) << 1 == 0
}

/// Every check on the interpreter, in every dialect and on Vulkan. The interpreter keeps the wanted bits (`nbad = 0`); so do the dialects;
/// Vulkan is within `vulkan_ulps` of the interpreter with one kind of fma in all of a case.
pub(crate) fn everywhere(name: &str, vulkan_ulps: u32, checks: impl Fn(u32) -> Vec<Check>) {
    interpreted(&checks);
    let cases: Vec<_> = checks(32).into_iter().map(|c| c.case).collect();
    dialects_agree(name, &cases);
    vulkan_agrees(vulkan_ulps, checks);
}

/// Every check on the interpreter, in all widths.
pub(crate) fn interpreted(checks: &dyn Fn(u32) -> Vec<Check>) {
    for subgroup in WIDTHS {
        for check in checks(subgroup) {
            let got = check.case.interpret();
            let (bad, first) = check.bad(&got, 0);
            let name = &check.case.kernel.name;
            assert!(bad == 0, "{name} in subgroups of {subgroup}: nbad = {bad}, first {first:?}");
        }
    }
}

/// Every check on Vulkan.
pub(crate) fn vulkan_agrees(ulps: u32, checks: impl Fn(u32) -> Vec<Check>) {
    let Some(vulkan) = Vulkan::new() else { return };
    for Check { case, .. } in checks(vulkan.subgroup) {
        let got = vulkan.run(&case);
        let differences = [FmaRounding::Once, FmaRounding::Twice]
            .map(|fma| difference(&case, &case.interpret_as(fma), &got, ulps));
        if let [Some(once), Some(twice)] = differences {
            panic!("with fused fma: {once}\nwith separate: {twice}");
        }
    }
}

/// The first place where the two differ by more than `ulps`, with what stands there.
fn difference(case: &Case, want: &[BufferData], got: &[BufferData], ulps: u32) -> Option<String> {
    let written =
        case.kernel.buffers.iter().zip(want).zip(got).filter(|((decl, _), _)| decl.access != Access::Read);
    written.into_iter().find_map(|((decl, want), got)| {
        want.words.iter().zip(&got.words).enumerate().find_map(|(i, (want, got))| {
            let (want, got) = ((*want)?, (*got)?);
            let [w, g] = [want, got].map(f32::from_bits);
            let text = format!(
                "{} `{}`[{i}]: {g:e} ({got:#x}), the interpreter has {w:e} ({want:#x})",
                case.kernel.name, decl.name
            );
            (!near(want, got, ulps)).then_some(text)
        })
    })
}

/// Every block format, in the order of the table.
pub(crate) fn formats() -> impl Iterator<Item = (&'static Format, Layout)> {
    QuantType::ALL.iter().filter_map(|t| {
        let format = t.format();
        Some((format, Layout::of(format)?))
    })
}

/// One layout by its name.
pub(crate) fn layout(name: &str) -> Layout {
    Layout::of(QuantType::from_name(name).unwrap().format()).unwrap()
}

/// Four packed bytes a word.
pub(crate) fn words(codes: &[i8]) -> impl Iterator<Item = u32> + '_ {
    codes.chunks_exact(4).map(|c| u32::from_le_bytes([c[0] as u8, c[1] as u8, c[2] as u8, c[3] as u8]))
}

/// The bits of floats.
pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// A packed matrix as buffers.
pub(crate) fn planes(
    names: [&'static str; 3],
    layout: &Layout,
    raw: &[u8],
) -> Vec<(&'static str, BufferData)> {
    let Planes { codes, scales, supers } = layout.pack(raw);
    let mut out = vec![(names[0], BufferData::of(codes)), (names[2], BufferData::of(supers))];
    if layout.scale_bytes() > 0 {
        out.push((names[1], BufferData::of(scales.into_iter().map(u32::from))));
    }
    out
}

/// Quantized activations as buffers.
pub(crate) fn activations(x: &[f32]) -> [(&'static str, BufferData); 2] {
    let row = QuantizedRow::new(x);
    [("x_codes", BufferData::of(words(&row.codes))), ("x_d", BufferData::of_f32(&row.d))]
}

/// Rows of floats in blocks of a format.
pub(crate) fn encode(ty: QuantType, n_in: usize, w: &[f32]) -> Vec<u8> {
    let mut out = vec![0; w.len() / n_in * ty.row_bytes(n_in).unwrap()];
    hanzo_quant::encode_rows(ty, w, n_in, None, &mut out).unwrap();
    out
}
