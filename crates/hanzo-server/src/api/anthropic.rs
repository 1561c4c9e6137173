//! Anthropic's dialect: `/v1/messages`.

mod messages;
mod reply;

use super::Routes;

pub(super) fn routes(routes: Routes) -> Routes {
    routes.post("/v1/messages", messages::create).post("/v1/messages/count_tokens", messages::count)
}
