//! What the kernel-isolated benches share: their command line, operands, the clock, and how a result is written.

#![allow(dead_code)]

use std::fmt::Write as _;
use std::time::Duration;

use hanzo_fusion::kernel::Kernel;
use hanzo_fusion::kernel::interpret::BufferData;
use hanzo_fusion::kernel::opt::optimize;
use hanzo_fusion::kernels::layout::{Layout, Planes};
use hanzo_quant::QuantType;
use hanzo_quant::canonical::{GROUP, QuantizedRow};

use crate::vulkan::{Resident, Vulkan, Which};

/// What a bench says of itself.
pub(crate) struct Bench {
    pub(crate) name: &'static str,
    /// What it measures, in a line.
    pub(crate) about: &'static str,
    /// Its variants and the default shape: the lines of options that are its own.
    pub(crate) options: &'static str,
}

impl Bench {
    fn help(&self) -> String {
        format!(
            "{name}: {about}

  cargo bench -p hanzo-fusion --bench {name} -- [OPTIONS]

{options}
  --seconds S      least time of a submission, of which three are made and the best one counts [0.5]
  --device NAME    part of the device's name; real devices come before software
  --json           one JSON object instead of a table
  --help           this text

GB/s counts weights, activations and results once; Gop/s counts a multiply-add as two. \"different\" counts outputs whose bits are not those of the
first variant: there are none.",
            name = self.name,
            about = self.about,
            options = self.options
        )
    }
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options {
    /// Part of the device's name.
    pub(crate) device: String,
    pub(crate) variants: Option<Vec<String>>,
    pub(crate) formats: Option<Vec<String>>,
    pub(crate) m: Option<usize>,
    pub(crate) n: Option<usize>,
    pub(crate) k: Option<usize>,
    /// Least time that a figure is taken over.
    pub(crate) seconds: f64,
    pub(crate) json: bool,
}

impl Options {
    /// Of the command line, without the program's name. `None` asks for help.
    pub(crate) fn parse(args: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut out = Self {
            device: String::new(),
            variants: None,
            formats: None,
            m: None,
            n: None,
            k: None,
            seconds: 0.5,
            json: false,
        };
        let mut args = args.peekable();
        while let Some(arg) = args.next() {
            let (key, inline) = match arg.split_once('=') {
                Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
                None => (arg, None),
            };
            let mut value = || inline.clone().or_else(|| args.next()).ok_or(format!("{key} needs a value"));
            let list = |text: String| text.split(',').map(|s| s.trim().to_owned()).collect::<Vec<_>>();
            match key.as_str() {
                "-h" | "--help" => return Ok(None),
                // `cargo bench` says so.
                "--bench" => {}
                "--json" => out.json = true,
                "--device" => out.device = value()?,
                "--rungs" => out.variants = Some(list(value()?)),
                "--formats" => out.formats = Some(list(value()?)),
                "-m" | "--m" => out.m = Some(size(&key, &value()?)?),
                "-n" | "--n" => out.n = Some(size(&key, &value()?)?),
                "-k" | "--k" => out.k = Some(size(&key, &value()?)?),
                "--seconds" => {
                    let text = value()?;
                    let seconds = text.parse().ok().filter(|s: &f64| (0.0..=60.0).contains(s));
                    out.seconds = seconds.ok_or(format!("--seconds {text}: 0 to 60"))?;
                }
                _ => return Err(format!("{key} is not known (--help lists what is)")),
            }
        }
        Ok(Some(out))
    }

    /// The shape that was asked for, else this one: rows of activations, rows of weights, columns.
    pub(crate) fn shape(&self, [m, n, k]: [usize; 3]) -> [usize; 3] {
        [self.m.unwrap_or(m), self.n.unwrap_or(n), self.k.unwrap_or(k)]
    }
}

fn size(key: &str, text: &str) -> Result<usize, String> {
    let n = text.parse().ok().filter(|n| (1..=65536).contains(n));
    n.ok_or(format!("{key} {text}: a size from 1 to 65536"))
}

/// A format by its name, with `k` columns.
pub(crate) fn layout(name: &str, k: usize) -> Result<Layout, String> {
    let ty = QuantType::from_name(name).ok_or(format!("{name} is no format"))?;
    let layout = Layout::of(ty.format()).ok_or(format!("{name} is not quantized"))?;
    let elems = layout.format.elems.max(GROUP);
    if k.is_multiple_of(elems) {
        Ok(layout)
    } else {
        Err(format!("--k {k} is no multiple of {elems}, {name}'s block"))
    }
}

/// The device, or why there is none.
pub(crate) fn open(options: &Options) -> Result<Vulkan, String> {
    Vulkan::open(Which::Named(&options.device), false)
        .ok_or(format!("no Vulkan device whose name contains \"{}\"", options.device))
}

/// Operands of a contraction, by the kernels' names for them.
pub(crate) struct Operands {
    buffers: Vec<(&'static str, BufferData)>,
    params: [(&'static str, u32); 3],
    outputs: usize,
    /// Bytes that must be read and written at least once.
    pub(crate) bytes: u64,
    /// Operations, a multiply-add two.
    pub(crate) ops: u64,
}

impl Operands {
    /// `n` rows of weights by `m` rows of activations, `k` columns.
    pub(crate) fn new(layout: &Layout, [m, n, k]: [usize; 3]) -> Self {
        let mut state = 0x1234_5678_9abc_def0u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let row = k / layout.format.elems * layout.format.bytes;
        // Keeps 16-bit scales finite: clears the top bit of what would be their exponent.
        let raw: Vec<u8> =
            (0..(n * row).div_ceil(8)).flat_map(|_| (next() & 0xbfff_bfff_bfff_bfff).to_le_bytes()).collect();
        let x: Vec<f32> = (0..m * k).map(|_| (next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0).collect();
        let Planes { codes, scales, supers } = layout.pack(raw.get(..n * row).unwrap_or_default());
        let x = QuantizedRow::new(&x);
        let x_codes = x
            .codes
            .chunks_exact(4)
            .map(|c| u32::from_le_bytes([c[0] as u8, c[1] as u8, c[2] as u8, c[3] as u8]));
        let buffers = vec![
            ("w_codes", BufferData::of(codes)),
            ("w_scales", BufferData::of(scales.into_iter().map(u32::from))),
            ("w_supers", BufferData::of(supers)),
            ("x_codes", BufferData::of(x_codes)),
            ("x_d", BufferData::of_f32(&x.d)),
            ("y", BufferData::empty(m * n)),
        ];
        Self {
            buffers,
            params: [("n_groups", (k / GROUP) as u32), ("n_out", n as u32), ("n_rows", m as u32)],
            outputs: m * n,
            bytes: (n * layout.row_bytes(k) + m * k + 4 * m * k / GROUP + 4 * m * n) as u64,
            ops: 2 * (m * n * k) as u64,
        }
    }

    /// The kernel with these operands on the device, and the index of its result.
    pub(crate) fn prepare<'v>(&self, vulkan: &'v Vulkan, kernel: &Kernel, grid: [u32; 2]) -> Prepared<'v> {
        let kernel = optimize(kernel);
        let find = |name: &str| self.buffers.iter().find(|(n, _)| *n == name).map(|(_, data)| data.clone());
        let buffers: Vec<_> =
            kernel.buffers.iter().map(|b| find(&b.name).unwrap_or_else(|| panic!("`{}`", b.name))).collect();
        let bits = |name: &str| self.params.iter().find(|(n, _)| *n == name).map(|(_, bits)| *bits);
        let params: Vec<_> =
            kernel.params.iter().map(|p| bits(&p.name).unwrap_or_else(|| panic!("`{}`", p.name))).collect();
        let y = kernel.buffers.iter().position(|b| b.name == "y").unwrap();
        let launch = vulkan.prepare(&kernel, [grid[0], grid[1], 1], &buffers, &params);
        Prepared { launch, y, outputs: self.outputs }
    }
}

/// A kernel that is ready to be run.
pub(crate) struct Prepared<'v> {
    launch: Resident<'v>,
    y: usize,
    outputs: usize,
}

impl Prepared<'_> {
    /// Seconds a launch: the least of three submissions, each as many launches as take `seconds`, with one wait at its end. And what the first launch of
    /// all wrote.
    pub(crate) fn time(&self, seconds: f64) -> (f64, u32, Vec<u32>) {
        self.launch.run(1);
        let wrote = self.launch.read(self.y, self.outputs).u32s().unwrap();
        let one = self.launch.run(1).max(Duration::from_micros(1)).as_secs_f64();
        let times = (seconds / one).ceil().clamp(1.0, 10_000.0) as u32;
        let all = (0..3).map(|_| self.launch.run(times).as_secs_f64() / f64::from(times));
        (all.fold(f64::INFINITY, f64::min), times, wrote)
    }
}

/// One figure.
pub(crate) struct Figure {
    pub(crate) format: String,
    pub(crate) variant: String,
    /// `None` where it cannot run, with the reason.
    pub(crate) seconds: Result<f64, String>,
    pub(crate) bytes: u64,
    pub(crate) ops: u64,
    /// Launches of a submission.
    pub(crate) times: u32,
    /// Outputs that differ from the first variant's.
    pub(crate) different: usize,
}

impl Figure {
    /// How many of two results' words differ; two NaN are the same.
    pub(crate) fn compare(a: &[u32], b: &[u32]) -> usize {
        let nan = |w: u32| f32::from_bits(w).is_nan();
        a.iter().zip(b).filter(|(a, b)| a != b && !(nan(**a) && nan(**b))).count()
    }
}

/// Writes the figures; ratios are to the first variant of the same format. Outputs that differ are an error, after that.
pub(crate) fn report(
    bench: &Bench,
    vulkan: &Vulkan,
    shape: [usize; 3],
    figures: &[Figure],
    json: bool,
) -> Result<(), String> {
    write(bench.name, vulkan, shape, figures, json);
    let different: usize = figures.iter().map(|f| f.different).sum();
    if different > 0 { Err(format!("{different} outputs differ between variants")) } else { Ok(()) }
}

fn write(what: &str, vulkan: &Vulkan, [m, n, k]: [usize; 3], figures: &[Figure], json: bool) {
    let base = |f: &Figure| {
        let first = figures.iter().find(|g| g.format == f.format)?;
        Some(*first.seconds.as_ref().ok()? / *f.seconds.as_ref().ok()?)
    };
    if json {
        let text = |s: &str| format!("\"{}\"", s.replace('\\', "\\\\").replace('"', "\\\""));
        let mut out = format!(
            "{{\"bench\":{},\"device\":{},\"software\":{},\"subgroup\":{},\"m\":{m},\"n\":{n},\"k\":{k},\"figures\":[",
            text(what),
            text(&vulkan.name),
            vulkan.software,
            vulkan.subgroup
        );
        for (i, f) in figures.iter().enumerate() {
            let _ = write!(
                out,
                "{}{{\"format\":{},\"variant\":{},\"bytes\":{},\"ops\":{}",
                if i > 0 { "," } else { "" },
                text(&f.format),
                text(&f.variant),
                f.bytes,
                f.ops
            );
            match &f.seconds {
                Ok(s) => {
                    let ratio = base(f).map_or("null".to_owned(), |r| format!("{r:.4}"));
                    let _ = write!(
                        out,
                        ",\"seconds\":{s:e},\"launches\":{},\"gb_per_s\":{:.3},\"gop_per_s\":{:.3},\"ratio\":{ratio},\"different\":{}}}",
                        f.times,
                        f.bytes as f64 / s / 1e9,
                        f.ops as f64 / s / 1e9,
                        f.different
                    );
                }
                Err(why) => {
                    let _ = write!(out, ",\"skipped\":{}}}", text(why));
                }
            }
        }
        println!("{out}]}}");
        return;
    }
    println!("{what} on {}, subgroups of {}: m = {m}, n = {n}, k = {k}", vulkan.name, vulkan.subgroup);
    if vulkan.software {
        println!("This device is a CPU under a driver: its figures say nothing of any GPU.");
    }
    println!(
        "{:<10}{:<12}{:>12}{:>10}{:>12}{:>10}{:>11}",
        "format", "variant", "ms", "GB/s", "Gop/s", "ratio", "different"
    );
    for f in figures {
        match &f.seconds {
            Ok(s) => println!(
                "{:<10}{:<12}{:>12.4}{:>10.2}{:>12.2}{:>10}{:>11}",
                f.format,
                f.variant,
                s * 1e3,
                f.bytes as f64 / s / 1e9,
                f.ops as f64 / s / 1e9,
                base(f).map_or("—".to_owned(), |r| format!("{r:.2}")),
                f.different
            ),
            Err(why) => println!("{:<10}{:<12}  {why}", f.format, f.variant),
        }
    }
}

/// Runs `bench` with the command line; help and errors go where they should.
pub(crate) fn main(
    bench: &Bench,
    run: impl FnOnce(&Options) -> Result<(), String>,
) -> std::process::ExitCode {
    let outcome = match Options::parse(std::env::args().skip(1)) {
        Ok(None) => {
            println!("{}", bench.help());
            Ok(())
        }
        Ok(Some(options)) => run(&options),
        Err(e) => Err(e),
    };
    match outcome {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            std::process::ExitCode::FAILURE
        }
    }
}
