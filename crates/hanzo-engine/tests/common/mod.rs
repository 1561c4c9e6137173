//! Small real models, engines on the CPU, and a device that fails on demand.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use hanzo_cpu::exec::CpuDevice;
use hanzo_cpu::isa::CpuConfig;
use hanzo_engine::{Engine, EngineOptions, Event, Events, Finish, Request};
use hanzo_fusion::graph::Graph;
use hanzo_fusion::{
    Device, DeviceError, LoadOptions, LoadedModel, MemoryReport, Progress, StateUse, Step, WeightSource,
};
use hanzo_gguf::GgufFile;

/// A small random model of an architecture. `None`, with a printed line, where the oracles are not there.
pub fn tiny(name: &str) -> Option<GgufFile> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/oracles/logits");
    open(folder.join(name).join(format!("{name}-f16.gguf")))
}

/// A real model from the folder that `HANZO_TEST_MODELS` names.
pub fn real(file: &str) -> Option<GgufFile> {
    let Ok(folder) = std::env::var("HANZO_TEST_MODELS") else {
        println!("skipped: HANZO_TEST_MODELS is not set");
        return None;
    };
    open(Path::new(&folder).join(file))
}

pub const SMOLLM: &str = "SmolLM2-135M-Instruct-Q4_1.gguf";

fn open(path: PathBuf) -> Option<GgufFile> {
    if !path.exists() {
        assert_ne!(std::env::var("HANZO_REQUIRE").as_deref(), Ok("all"), "{} is missing", path.display());
        println!("skipped: {} is missing", path.display());
        return None;
    }
    Some(GgufFile::open(&path).unwrap())
}

pub fn cpu(threads: usize) -> CpuDevice {
    CpuDevice::new(&CpuConfig { threads: Some(threads), ..CpuConfig::default() }).unwrap()
}

pub fn engine(file: &GgufFile, threads: usize, options: EngineOptions) -> Engine {
    Engine::load(file, &cpu(threads), options, &()).unwrap()
}

/// All that a request said.
#[derive(Debug, Default)]
pub struct Reply {
    pub tokens: Vec<u32>,
    pub logprobs: Vec<String>,
    pub finish: Option<Finish>,
    pub error: Option<String>,
}

impl Reply {
    pub fn take(&mut self, event: Event) {
        assert!(self.finish.is_none() && self.error.is_none(), "nothing follows the end");
        match event {
            Event::Token(token) => {
                self.tokens.push(token.id);
                self.logprobs.push(format!("{:?}", token.logprobs));
            }
            Event::Finished(finish) => self.finish = Some(finish),
            Event::Failed(error) => self.error = Some(error.to_string()),
        }
    }

    pub fn finished(&self) -> Finish {
        self.finish.unwrap_or_else(|| panic!("not finished: {:?}", self.error))
    }
}

pub fn collect(events: Events) -> Reply {
    let mut reply = Reply::default();
    events.for_each(|event| reply.take(event));
    reply
}

pub fn run(engine: &Engine, request: Request) -> Reply {
    collect(engine.generate(request).unwrap())
}

/// Waits until nothing runs, and checks that every block came back.
pub fn settle(engine: &Engine) {
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        let m = engine.metrics();
        if m.waiting + m.running == 0 && m.kv_free == m.kv_blocks && m.states_free == m.states {
            return;
        }
        assert!(Instant::now() < until, "requests or blocks are left: {m:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A small generator for test data.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// What the next steps do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Error,
    Panic,
    CopyError,
}

/// The device's side of a test: faults to come, steps let through, steps seen.
#[derive(Default)]
pub struct Control {
    fault: Mutex<Option<Fault>>,
    /// Steps that may still run; `None` lets all run.
    permits: Mutex<Option<usize>>,
    permitted: Condvar,
    /// Steps that wait for a permit.
    blocked: AtomicUsize,
    /// Rows of each sequence, of each step that ran.
    pub steps: Mutex<Vec<Vec<usize>>>,
}

impl Control {
    pub fn fail_next(&self, fault: Fault) {
        *self.fault.lock().unwrap() = Some(fault);
    }

    /// From now on every step needs a permit.
    pub fn hold(&self) {
        *self.permits.lock().unwrap() = Some(0);
    }

    pub fn permit(&self, n: usize) {
        if let Some(permits) = self.permits.lock().unwrap().as_mut() {
            *permits += n;
        }
        self.permitted.notify_all();
    }

    pub fn release(&self) {
        *self.permits.lock().unwrap() = None;
        self.permitted.notify_all();
    }

    /// Waits until a step wants to run.
    pub fn wait_blocked(&self) {
        let until = Instant::now() + Duration::from_secs(60);
        while self.blocked.load(Ordering::SeqCst) == 0 {
            assert!(Instant::now() < until, "no step came");
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn wait_permit(&self) {
        let mut permits = self.permits.lock().unwrap();
        self.blocked.fetch_add(1, Ordering::SeqCst);
        loop {
            match permits.as_mut() {
                None => break,
                Some(0) => {
                    // A test that failed must not hang in the engine's end.
                    let (guard, timeout) =
                        self.permitted.wait_timeout(permits, Duration::from_secs(60)).unwrap();
                    permits = guard;
                    if timeout.timed_out() {
                        break;
                    }
                }
                Some(n) => {
                    *n -= 1;
                    break;
                }
            }
        }
        self.blocked.fetch_sub(1, Ordering::SeqCst);
    }

    fn take(&self, wanted: impl Fn(Fault) -> bool) -> Option<Fault> {
        let mut fault = self.fault.lock().unwrap();
        if fault.is_some_and(wanted) { fault.take() } else { None }
    }
}

/// The CPU, with a [`Control`] in front.
pub struct Controlled(pub CpuDevice, pub Arc<Control>);

struct ControlledModel(Box<dyn LoadedModel>, Arc<Control>);

impl Device for Controlled {
    fn describe(&self) -> String {
        self.0.describe()
    }

    fn load(
        &self,
        graph: Arc<Graph>,
        weights: &dyn WeightSource,
        options: LoadOptions,
        progress: &dyn Progress,
    ) -> Result<Box<dyn LoadedModel>, DeviceError> {
        let model = self.0.load(graph, weights, options, progress)?;
        Ok(Box::new(ControlledModel(model, Arc::clone(&self.1))))
    }
}

impl LoadedModel for ControlledModel {
    fn step(&mut self, step: &Step<'_>, logits: &mut [f32]) -> Result<(), DeviceError> {
        self.step_states(step, &[], logits)
    }

    fn copy_states(&mut self, pairs: &[(u32, u32)]) -> Result<(), DeviceError> {
        if self.1.take(|f| f == Fault::CopyError).is_some() {
            return Err(DeviceError::StepFailed("a copy failed".to_owned()));
        }
        self.0.copy_states(pairs)
    }

    fn step_states(
        &mut self,
        step: &Step<'_>,
        states: &[StateUse<'_>],
        logits: &mut [f32],
    ) -> Result<(), DeviceError> {
        self.1.wait_permit();
        self.1.steps.lock().unwrap().push(step.sequences.iter().map(|s| s.n_tokens).collect());
        let outcome = self.0.step_states(step, states, logits);
        match self.1.take(|f| f != Fault::CopyError) {
            // What the step left is garbage, as after a real fault.
            Some(Fault::Error) => {
                logits.fill(f32::NAN);
                Err(DeviceError::StepFailed("a kernel failed".to_owned()))
            }
            Some(_) => panic!("a worker panicked"),
            None => outcome,
        }
    }

    fn hidden(&self) -> &[f32] {
        self.0.hidden()
    }

    fn copy_blocks(&mut self, group: usize, pairs: &[(u32, u32)]) -> Result<(), DeviceError> {
        if self.1.take(|f| f == Fault::CopyError).is_some() {
            return Err(DeviceError::StepFailed("a copy failed".to_owned()));
        }
        self.0.copy_blocks(group, pairs)
    }

    fn memory(&self) -> MemoryReport {
        self.0.memory()
    }

    fn plan_text(&self) -> String {
        self.0.plan_text()
    }
}
