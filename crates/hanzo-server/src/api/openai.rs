//! OpenAI's dialect.

mod chat;
mod completions;
mod messages;
mod models;
mod output;
pub(crate) mod sampling;
mod tools;

use super::Routes;

pub(super) fn routes(routes: Routes) -> Routes {
    routes
        .post("/v1/chat/completions", chat::create)
        .post("/v1/completions", completions::create)
        .get("/v1/models", models::list)
        .get("/v1/models/{*model}", models::get)
}
