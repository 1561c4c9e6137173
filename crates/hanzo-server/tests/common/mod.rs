//! A server in the test's own process, with the small model that the binary carries.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hanzo_cpu::exec::CpuDevice;
use hanzo_cpu::isa::CpuConfig;
use hanzo_gguf::GgufFile;
use hanzo_server::{App, Config, LoadSettings, LoadedModel, Registry, Server};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// A running server; dropping it stops it.
pub struct Running {
    pub address: SocketAddr,
    pub app: Arc<App>,
    stop: Option<oneshot::Sender<()>>,
    task: Option<tokio::task::JoinHandle<usize>>,
}

/// The small model's file.
pub fn tiny() -> GgufFile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hanzo-cli/assets/hanzo-tiny.gguf");
    GgufFile::open(path).unwrap()
}

pub fn load(name: &str, settings: &LoadSettings) -> LoadedModel {
    let device = CpuDevice::new(&CpuConfig { threads: Some(2), ..CpuConfig::default() }).unwrap();
    LoadedModel::load(name, &tiny(), &device, settings, &()).unwrap()
}

/// A server of the small model.
pub async fn start() -> Running {
    start_with(Config::default(), &LoadSettings::default()).await
}

pub async fn start_with(config: Config, settings: &LoadSettings) -> Running {
    start_model(config, load("hanzo-tiny", settings)).await
}

pub async fn start_model(config: Config, model: LoadedModel) -> Running {
    start_registry(config, Registry::single(model)).await
}

pub async fn start_registry(config: Config, registry: Arc<Registry>) -> Running {
    let app = App::new(config, registry);
    let server = Server::new(Arc::clone(&app)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let stopped = async {
            let _ = stopped.await;
        };
        server.serve(listener, stopped).await.unwrap()
    });
    Running { address, app, stop: Some(stop), task: Some(task) }
}

/// A response, read to its end.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: hyper::HeaderMap,
    pub body: Bytes,
}

impl Answer {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {:?}", self.body))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|v| v.to_str().unwrap())
    }

    /// The response is this error, in OpenAI's shape.
    #[track_caller]
    pub fn fails(&self, status: u16, pointer: Option<&str>) -> &Self {
        assert_eq!(self.status, status, "{self:?}");
        let error = &self.json()["error"];
        assert!(error["message"].as_str().is_some_and(|m| !m.is_empty()), "{self:?}");
        assert!(error["type"].is_string(), "{self:?}");
        assert_eq!(error["pointer"].as_str(), pointer, "{self:?}");
        self
    }

    /// The data of a stream's messages, which end as OpenAI's do.
    #[track_caller]
    pub fn messages(&self) -> Vec<Value> {
        assert!(self.body.ends_with(b"data: [DONE]\n\n"), "{self:?}");
        self.data()
    }

    /// The data of a stream's messages.
    #[track_caller]
    pub fn data(&self) -> Vec<Value> {
        let text = std::str::from_utf8(&self.body).unwrap();
        let data = text.lines().filter_map(|l| l.strip_prefix("data: ")).filter(|d| *d != "[DONE]");
        data.map(|d| serde_json::from_str(d).unwrap()).collect()
    }
}

impl Running {
    /// Stops the server; returns how many connections it cut off.
    pub async fn stop(mut self) -> usize {
        self.stop.take().map(|stop| stop.send(()));
        self.task.take().unwrap().await.unwrap()
    }

    pub async fn connect(&self) -> http1::SendRequest<Full<Bytes>> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(async move {
            let _ = connection.await;
        });
        sender
    }

    pub async fn send(&self, request: hyper::Request<Full<Bytes>>) -> Answer {
        let response = self.connect().await.send_request(request).await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        Answer { status, headers, body }
    }

    pub async fn get(&self, path: &str) -> Answer {
        let request = hyper::Request::get(path).header("host", "localhost").body(Full::default()).unwrap();
        self.send(request).await
    }

    /// A request without a body.
    pub async fn send_empty(&self, method: &str, path: &str) -> Answer {
        let request = hyper::Request::builder().method(method).uri(path).header("host", "localhost");
        self.send(request.body(Full::default()).unwrap()).await
    }

    pub async fn post_bytes(&self, path: &str, body: impl Into<Bytes>) -> Answer {
        self.send(post(path, body)).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_bytes(path, body.to_string()).await
    }

    /// Waits until nothing runs or waits, and says whether that came to be.
    pub async fn becomes_idle(&self, within: Duration) -> bool {
        let began = Instant::now();
        let models = self.app.registry.list();
        while began.elapsed() < within {
            let idle =
                |m: hanzo_engine::Metrics| m.running == 0 && m.waiting == 0 && m.kv_free == m.kv_blocks;
            if models.iter().all(|model| idle(model.engine.metrics())) {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        false
    }
}

pub fn post(path: &str, body: impl Into<Bytes>) -> hyper::Request<Full<Bytes>> {
    hyper::Request::post(path)
        .header("host", "localhost")
        .header("content-type", "application/json")
        .body(Full::new(body.into()))
        .unwrap()
}
