//! `hanzo quantize`: a model in fewer bits.
//!
//! This file says what the user can ask for and what is reported; [`recipe`] knows which tensor gets which type, [`plan`]
//! decides for a file, [`importance`] reads importance matrices, [`convert`] does the work.

mod convert;
mod importance;
mod plan;
mod recipe;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use hanzo_fusion::Progress as _;
use hanzo_gguf::{GgufFile, GgufWriter, MetadataValue};
use hanzo_quant::wants_importance;
use regex_lite::Regex;

use convert::OnProgress;
use importance::Importance;
use plan::{Action, Plan, Wishes, encodable_type, new_type};
use recipe::Recipe;

use crate::failure::{Interrupted, usage};
use crate::interrupt::{self, During};
use crate::progress::Bar;
use crate::{model, out};

/// Version of the block layouts, which `general.quantization_version` names.
const QUANTIZATION_VERSION: u32 = 2;

/// Make a model smaller
#[derive(Debug, clap::Args)]
#[command(after_help = after_help())]
pub(crate) struct Args {
    /// The model: a GGUF file of F32, F16 or BF16 weights (of a split one, any shard)
    input: PathBuf,
    /// The file to write; it appears when it is complete
    output: PathBuf,
    /// What to make of it: one of the names below
    #[arg(value_name = "TYPE")]
    ty: String,
    /// Importance matrix (of `hanzo imatrix` or llama.cpp) that says which columns matter
    #[arg(long, value_name = "FILE")]
    imatrix: Option<PathBuf>,
    /// One type for all matrices, without the usual exceptions
    #[arg(long)]
    pure: bool,
    /// Type of the tensors whose names match a regular expression; may be given several times, the first match counts
    #[arg(long, value_name = "PATTERN=TYPE")]
    tensor_type: Vec<String>,
    /// Type of the output matrix
    #[arg(long, value_name = "TYPE")]
    output_tensor_type: Option<String>,
    /// Type of the token embedding
    #[arg(long, value_name = "TYPE")]
    token_embedding_type: Option<String>,
    /// Accept input that is quantized already
    #[arg(long)]
    allow_requantize: bool,
    /// Threads; as many as there are processors if left out
    #[arg(long, short = 't', value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Say what would be done and stop
    #[arg(long)]
    dry_run: bool,
}

fn after_help() -> String {
    let mut text = String::from(
        "Examples:
  hanzo quantize model-f16.gguf model-q4_k_m.gguf Q4_K_M
  hanzo quantize model-f16.gguf model-iq2_xs.gguf IQ2_XS --imatrix imatrix.gguf
  hanzo quantize model-f16.gguf out.gguf Q4_K_M --tensor-type 'ffn_down=Q6_K' --dry-run

Types:
",
    );
    for recipe in Recipe::ALL {
        text += &format!("  {:<10} {}\n", recipe.name(), recipe.what());
    }
    text
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let bar = Bar::bytes("quantizing");
    interrupt::init();
    let (during, stop) = During::work();
    let report = quantize(args, &|done, total| {
        bar.update(done, total);
        // An error on the way out: the draft beside the output is removed.
        if stop.is_wanted() { Err(anyhow::Error::new(Interrupted)) } else { Ok(()) }
    });
    drop((bar, during));
    let report = report?;
    for note in &report.notes {
        out::warning(format_args!("{note}"));
    }
    out::print(&report.to_string())
}

/// What was done (or, in a dry run, would be).
#[derive(Debug)]
pub(crate) struct Report {
    recipe: Recipe,
    output: Option<PathBuf>,
    notes: Vec<String>,
    /// By type in the new file: tensors, bytes, and whether any was encoded.
    types: BTreeMap<&'static str, (usize, u64)>,
    bytes_before: u64,
    bytes_after: u64,
    elements: u64,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (ty, (tensors, bytes)) in &self.types {
            writeln!(f, "{ty:<8} {tensors:>5} tensors {:>11.2} MiB", mib(*bytes))?;
        }
        let bits = 8.0 * self.bytes_after as f64 / self.elements.max(1) as f64;
        let (before, after) = (mib(self.bytes_before), mib(self.bytes_after));
        writeln!(
            f,
            "{}: {before:.2} MiB became {after:.2} MiB, {bits:.2} bits a weight",
            self.recipe.name()
        )?;
        match &self.output {
            Some(path) => writeln!(f, "wrote {}", path.display()),
            None => writeln!(f, "nothing written (dry run)"),
        }
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 20) as f64
}

/// Does what `args` ask for. `progress` hears of bytes of input done, from any thread.
///
/// # Errors
/// Wrong wishes, unreadable input, unwritable output, values that cannot be encoded.
pub(crate) fn quantize(args: &Args, progress: OnProgress<'_>) -> Result<Report> {
    let wishes = wishes(args)?;
    let file = GgufFile::open(&args.input)
        .with_context(|| format!("cannot open model `{}`", args.input.display()))?;
    model::refuse_overwriting(&file, &args.output)?;
    let importance = args.imatrix.as_deref().map(Importance::open).transpose()?;
    let mut plan = plan::plan(&file, &wishes, importance.as_ref())?;
    if importance.is_none()
        && let Some(ty) = first_that_wants_importance(&plan)
    {
        plan.notes.push(format!("{ty} without an importance matrix (--imatrix) gives a poor model"));
    }
    let mut report = Report {
        recipe: wishes.recipe,
        output: None,
        notes: std::mem::take(&mut plan.notes),
        types: BTreeMap::new(),
        bytes_before: file.tensor_bytes_total(),
        bytes_after: 0,
        elements: 0,
    };
    for (tensor, &action) in file.tensors().iter().zip(&plan.actions) {
        let ty = new_type(tensor, action);
        let bytes = ty.tensor_bytes(tensor.dims()).map_err(anyhow::Error::msg)?;
        let entry = report.types.entry(ty.name()).or_default();
        *entry = (entry.0 + 1, entry.1 + bytes);
        report.bytes_after += bytes;
        report.elements += tensor.n_elements();
    }
    if args.dry_run {
        return Ok(report);
    }
    let header = header(&file, &wishes, importance.as_ref(), args.imatrix.as_deref())?;
    let threads = match args.threads {
        Some(n) => usize::from(n),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    convert::convert(
        &file,
        &plan,
        importance.as_ref(),
        header,
        &args.output,
        threads.clamp(1, 256),
        progress,
    )
    .with_context(|| format!("cannot write `{}`", args.output.display()))?;
    report.output = Some(args.output.clone());
    Ok(report)
}

fn wishes(args: &Args) -> Result<Wishes> {
    let recipe = Recipe::from_name(&args.ty).ok_or_else(|| {
        let names: Vec<_> = Recipe::ALL.iter().map(|recipe| recipe.name()).collect();
        usage(format!("unknown type `{}`; there are {}", args.ty, names.join(" ")))
    })?;
    let by_name = args.tensor_type.iter().map(|wish| {
        let (pattern, ty) = wish
            .rsplit_once('=')
            .ok_or_else(|| usage(format!("--tensor-type `{wish}` is not PATTERN=TYPE")))?;
        let pattern = Regex::new(pattern).map_err(|error| {
            usage(format!("--tensor-type: `{pattern}` is no regular expression: {error}"))
        })?;
        Ok((pattern, encodable_type(ty)?))
    });
    Ok(Wishes {
        recipe,
        pure_type: args.pure,
        output: args.output_tensor_type.as_deref().map(encodable_type).transpose()?,
        token_embedding: args.token_embedding_type.as_deref().map(encodable_type).transpose()?,
        by_name: by_name.collect::<Result<_>>()?,
        allow_requantize: args.allow_requantize,
    })
}

fn first_that_wants_importance(plan: &Plan) -> Option<hanzo_quant::QuantType> {
    plan.actions.iter().find_map(|action| match *action {
        Action::Encode { to, .. } if wants_importance(to) => Some(to),
        _ => None,
    })
}

/// The new file's metadata: the old one's, but for what this changes.
fn header(
    file: &GgufFile,
    wishes: &Wishes,
    importance: Option<&Importance>,
    path: Option<&Path>,
) -> Result<GgufWriter> {
    let mut header = GgufWriter::new();
    header.copy_metadata(file.metadata())?;
    for key in ["split.no", "split.count", "split.tensors.count"] {
        header.remove(key);
    }
    header.set("general.file_type", wishes.recipe.file_type())?;
    header.set("general.quantization_version", QUANTIZATION_VERSION)?;
    if let (Some(importance), Some(path)) = (importance, path) {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        header.set("quantize.imatrix.file", MetadataValue::byte_string(name))?;
        if let Some(dataset) = importance.datasets.first() {
            header.set("quantize.imatrix.dataset", MetadataValue::byte_string(dataset))?;
        }
        header.set("quantize.imatrix.entries_count", u32::try_from(importance.len())?)?;
        if let Some(chunks) = importance.chunks {
            header.set("quantize.imatrix.chunks_count", chunks)?;
        }
    }
    Ok(header)
}
