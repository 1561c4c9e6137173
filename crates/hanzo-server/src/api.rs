//! All endpoints: one file each, under its dialect.

mod admin;
mod anthropic;
pub(crate) mod conversation;
mod llamacpp;
mod lora;
mod ollama;
pub(crate) mod openai;
mod ops;

use std::sync::Arc;

use axum::Router;
use axum::handler::Handler;
use axum::http::StatusCode;
use axum::routing::{self, MethodRouter};

use crate::error::ApiError;
use crate::state::App;
use crate::web;

/// A router that knows its own routes, so that the API's description can be compared with them.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    router: Router<Arc<App>>,
    paths: Vec<(&'static str, &'static str)>,
}

impl Routes {
    pub(crate) fn get<H: Handler<T, Arc<App>>, T: 'static>(self, path: &'static str, handler: H) -> Self {
        self.add("get", path, routing::get(handler))
    }

    pub(crate) fn post<H: Handler<T, Arc<App>>, T: 'static>(self, path: &'static str, handler: H) -> Self {
        self.add("post", path, routing::post(handler))
    }

    pub(crate) fn delete<H: Handler<T, Arc<App>>, T: 'static>(self, path: &'static str, handler: H) -> Self {
        self.add("delete", path, routing::delete(handler))
    }

    fn add(mut self, method: &'static str, path: &'static str, route: MethodRouter<Arc<App>>) -> Self {
        self.router = self.router.route(path, route);
        self.paths.push((method, path));
        self
    }
}

/// All endpoints.
fn routes() -> Routes {
    let routes = Routes::default();
    let routes = ops::routes(routes);
    let routes = lora::routes(routes);
    let routes = admin::routes(routes);
    let routes = openai::routes(routes);
    let routes = anthropic::routes(routes);
    let routes = ollama::routes(routes);
    llamacpp::routes(routes)
}

/// The endpoints and the page as a router; what it does not have is an error too.
pub(crate) fn router() -> Router<Arc<App>> {
    routes().router.merge(web::router()).fallback(no_such_path).method_not_allowed_fallback(no_such_method)
}

async fn no_such_path(method: axum::http::Method, uri: axum::http::Uri) -> ApiError {
    let path: String = uri.path().chars().take(200).collect();
    ApiError::new(StatusCode::NOT_FOUND, format!("there is no {method} {path}; see /openapi.json"))
}

async fn no_such_method(method: axum::http::Method, uri: axum::http::Uri) -> ApiError {
    let path: String = uri.path().chars().take(200).collect();
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, format!("{path} does not take {method}; see /openapi.json"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_description_has_every_route_and_no_other() {
        let description: serde_json::Value = serde_json::from_str(ops::OPENAPI).unwrap();
        let described: BTreeSet<(String, String)> = description["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, methods)| {
                let methods = methods.as_object().unwrap().keys();
                methods.map(|method| (method.clone(), path.clone())).collect::<Vec<_>>()
            })
            .collect();
        let routed: BTreeSet<(String, String)> =
            routes().paths.iter().map(|(method, path)| ((*method).to_owned(), (*path).to_owned())).collect();
        assert_eq!(described, routed);
    }
}
