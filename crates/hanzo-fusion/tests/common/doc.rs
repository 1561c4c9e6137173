//! Generated parts of the pages in `docs`: each between two comments that name it, checked by the test that makes it.

#![allow(dead_code)]

use std::path::Path;

/// [`check_page`] of `docs/kernels.md`.
pub(crate) fn check(name: &str, text: &str) {
    check_page("kernels.md", name, text);
}

/// Checks that the part `name` of the page is `text`; with `HANZO_BLESS=1`, makes it so.
pub(crate) fn check_page(page: &str, name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let title = page;
    let page = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = (format!("<!-- generated: {name} -->\n"), format!("<!-- end: {name} -->\n"));
    let (head, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("docs/{title} has no `{name}`"));
    let (old, tail) = rest.split_once(&end).unwrap_or_else(|| panic!("`{name}` of docs/{title} has no end"));
    if old == text {
        return;
    }
    if std::env::var_os("HANZO_BLESS").is_some() {
        std::fs::write(&path, format!("{head}{begin}{text}{end}{tail}")).unwrap();
        return;
    }
    let line = old.lines().zip(text.lines()).find(|(a, b)| a != b);
    let line = line.unwrap_or(("another number of lines", ""));
    panic!(
        "`{name}` of docs/{title} is stale: HANZO_BLESS=1 rewrites it.\n  page: {}\n  now:  {}",
        line.0, line.1
    );
}
