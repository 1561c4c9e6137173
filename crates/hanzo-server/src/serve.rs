//! Connections: who may hold one, for how long, and how they end.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::middleware;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};
use tokio_rustls::TlsAcceptor;

use crate::hosts::{Guard, Names};
use crate::state::App;
use crate::{api, auth, context, cors, hosts, tls};

/// A server that is ready to listen.
#[derive(Debug)]
pub struct Server {
    app: Arc<App>,
    /// What it answers, to those who name it rightly.
    router: Router,
    names: Names,
    tls: Option<TlsAcceptorDebug>,
}

/// [`TlsAcceptor`] without a `Debug` of its own.
struct TlsAcceptorDebug(TlsAcceptor);

impl std::fmt::Debug for TlsAcceptorDebug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsAcceptor")
    }
}

/// What the tasks of connections share.
#[derive(Clone)]
struct Shared {
    router: Router,
    tls: Option<TlsAcceptor>,
    drain: watch::Receiver<bool>,
    header_time: Duration,
    write_time: Duration,
    header_bytes: usize,
}

impl Server {
    /// A server for these models.
    ///
    /// # Errors
    /// Certificate files that cannot be used; origins and hosts that are none.
    pub fn new(app: Arc<App>) -> Result<Self, ServeError> {
        let tls = app.config.tls.as_ref().map(tls::acceptor).transpose()?.map(TlsAcceptorDebug);
        let cors = cors::layer(&app.config.cors_origins)?;
        let names = Names::new(&app.config.allowed_hosts)?;
        let router = api::router()
            .layer(middleware::from_fn_with_state(Arc::clone(&app), auth::require_key))
            .layer(cors)
            .with_state(Arc::clone(&app));
        Ok(Self { app, router, names, tls })
    }

    /// Serves connections until `stop` is there; then takes no new ones, lets running replies end, for as long as the
    /// limits say, and returns how many were cut off.
    ///
    /// # Errors
    /// When the listener fails for good, or has no address.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()>) -> io::Result<usize> {
        let limits = &self.app.config.limits;
        let guard = Guard::new(self.names, listener.local_addr()?, !self.app.config.api_keys.is_empty());
        let router = self
            .router
            .layer(middleware::from_fn_with_state(guard, hosts::require_host))
            .layer(middleware::from_fn_with_state(Arc::clone(&self.app), context::accompany));
        let (drain_sender, drain) = watch::channel(false);
        let shared = Shared {
            router,
            tls: self.tls.map(|tls| tls.0),
            drain,
            header_time: limits.header_time,
            write_time: limits.write_time,
            header_bytes: limits.header_bytes.max(8192),
        };
        let places = Arc::new(Semaphore::new(limits.connections));
        let mut connections = JoinSet::new();
        let mut stop = std::pin::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => match Arc::clone(&places).try_acquire_owned() {
                        Ok(place) => { connections.spawn(connection(shared.clone(), stream, peer, place)); }
                        Err(_) => tracing::warn!(%peer, "closed: all {} connections are taken", limits.connections),
                    },
                    Err(error) => {
                        // Out of files, or a connection that was gone before it was taken.
                        tracing::warn!("a connection could not be taken: {error}");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
            }
        }
        drop(listener);
        self.app.drain();
        // Nobody listens where there are no connections.
        let _ = drain_sender.send(true);
        let all_ended = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(limits.drain_time, all_ended).await.is_err() {
            let cut = connections.len();
            connections.shutdown().await;
            return Ok(cut);
        }
        Ok(0)
    }
}

/// Why a server cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A file for TLS.
    #[error("{path}: {reason}")]
    Tls {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An origin for CORS.
    #[error("`{0}` is no origin: expected something like https://example.org, or *")]
    Origin(String),
    /// A host to answer to.
    #[error("`{0}` is no host: expected a name or an address without scheme and port, *.example.org, or *")]
    Host(String),
}

/// Waits until the server is told to stop.
async fn told(drain: &mut watch::Receiver<bool>) {
    // An error means that the server is gone, which is as good.
    let _ = drain.wait_for(|drain| *drain).await.map(|_| ());
}

async fn connection(shared: Shared, stream: TcpStream, peer: SocketAddr, place: OwnedSemaphorePermit) {
    // Tokens are small: none shall wait for the next.
    let _ = stream.set_nodelay(true);
    let mut drain = shared.drain.clone();
    let header_time = shared.header_time;
    let stream = Watched::new(stream, shared.write_time);
    match shared.tls.clone() {
        None => http(shared, stream).await,
        Some(tls) => {
            let accepted = tokio::select! {
                accepted = tokio::time::timeout(header_time, tls.accept(stream)) => accepted,
                () = told(&mut drain) => return,
            };
            match accepted {
                Ok(Ok(stream)) => http(shared, stream).await,
                Ok(Err(error)) => tracing::debug!(%peer, "no TLS: {error}"),
                Err(_) => tracing::debug!(%peer, "TLS took too long"),
            }
        }
    }
    drop(place);
}

async fn http(shared: Shared, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let mut drain = shared.drain;
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(shared.header_time)
        .max_buf_size(shared.header_bytes);
    let service = TowerToHyperService::new(shared.router);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = told(&mut drain) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!("connection: {error}");
    }
}

/// A stream whose writes must get on: a client that takes no bytes for too long is gone.
struct Watched {
    stream: TcpStream,
    time: Duration,
    /// Runs while a write waits.
    patience: Option<Pin<Box<Sleep>>>,
}

impl Watched {
    fn new(stream: TcpStream, time: Duration) -> Self {
        Self { stream, time, patience: None }
    }

    fn judge<T>(&mut self, cx: &mut Context<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.patience = None;
            return poll;
        }
        let time = self.time;
        let patience =
            self.patience.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + time)));
        ready!(patience.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes no bytes")))
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.judge(cx, poll)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.judge(cx, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
