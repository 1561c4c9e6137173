//! Ollama's dialect: `/api/*`. Streams are lines of JSON, and on unless turned off.

mod chat;
mod embed;
mod generate;
mod keep_alive;
mod models;
mod options;
mod pull;
mod reply;

use super::Routes;

pub(super) fn routes(routes: Routes) -> Routes {
    routes
        .post("/api/chat", chat::create)
        .post("/api/generate", generate::create)
        .post("/api/embed", embed::create)
        .post("/api/embeddings", embed::create_one)
        .get("/api/tags", models::tags)
        .get("/api/ps", models::ps)
        .post("/api/show", models::show)
        .post("/api/pull", pull::create)
        .get("/api/version", models::version)
}
