//! The endpoints of llama.cpp's server that its clients and editors' plug-ins use.

mod completion;
mod props;
mod text;

use super::Routes;

pub(super) fn routes(routes: Routes) -> Routes {
    routes
        .post("/tokenize", text::tokenize)
        .post("/detokenize", text::detokenize)
        .post("/apply-template", text::apply_template)
        .post("/completion", completion::complete)
        .post("/infill", completion::infill)
        .get("/props", props::props)
        .get("/slots", props::slots)
}
