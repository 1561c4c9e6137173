//! OpenAI's dialect.

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod embeddings;
pub(crate) mod messages;
mod models;
pub(crate) mod output;
mod rerank;
pub(crate) mod responses;
pub(crate) mod sampling;
pub(crate) mod tools;

use super::Routes;

pub(super) fn routes(routes: Routes) -> Routes {
    routes
        .post("/v1/chat/completions", chat::create)
        .post("/v1/completions", completions::create)
        .post("/v1/embeddings", embeddings::create)
        .post("/v1/rerank", rerank::create)
        .post("/v1/responses", responses::create)
        .get("/v1/responses/{id}", responses::get)
        .delete("/v1/responses/{id}", responses::delete)
        .get("/v1/models", models::list)
        .get("/v1/models/{*model}", models::get)
}
