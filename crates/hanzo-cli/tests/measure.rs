//! `hanzo bench` and `hanzo explain` on the built-in model: the form of what they say. How fast it is is nobody's test.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use common::{TINY, finish, hanzo, run};
use serde_json::Value;

/// Shapes and numbers of samples.
fn cells(file: &Value) -> Vec<(String, u64, u64, u64, usize)> {
    let of = |cell: &Value| {
        let n = |name: &str| cell[name].as_u64().unwrap();
        let samples = cell["samples"].as_array().unwrap();
        for sample in samples {
            assert!(sample[0].as_f64().unwrap() > 0.0 && sample[1].as_u64().unwrap() > 0, "{cell}");
        }
        (cell["phase"].as_str().unwrap().to_owned(), n("n"), n("batch"), n("depth"), samples.len())
    };
    file["cells"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn samples_have_the_documented_form() {
    let args = [
        "bench",
        "-m",
        TINY,
        "-p",
        "5,9",
        "-n",
        "4",
        "-r",
        "2",
        "-b",
        "1,3",
        "-d",
        "6",
        "--threads",
        "2",
        "--json",
    ];
    let file = run(&args).ok().json();
    let cell = |phase: &str, n, batch, depth| (phase.to_owned(), n, batch, depth, 3);
    let want = [
        cell("prefill", 5, 1, 0),
        cell("prefill", 9, 1, 0),
        cell("decode", 4, 1, 6),
        cell("decode", 4, 3, 6),
    ];
    assert_eq!(cells(&file), want);
    assert_eq!(file["cells"][3]["samples"][0][1], 12, "all sequences' tokens count");
    let manifest = &file["manifest"];
    assert_eq!((&manifest["engine"], &manifest["prefix_cache"]), (&"hanzo".into(), &false.into()));
    assert!(manifest["device"].as_str().unwrap().contains("2 threads"), "{manifest}");
    assert!(
        manifest["load_s"].as_f64().unwrap() > 0.0 && manifest["peak_rss_bytes"].as_u64().unwrap() > 1 << 20
    );
    // A deeper step reads the same weights and more of the cache.
    let bytes = |args: &[&str]| run(args).ok().json()["cells"][0]["step_bytes"].as_f64().unwrap();
    let at = |depth| bytes(&["bench", "-m", TINY, "-p", "0", "-n", "2", "-r", "0", "-d", depth, "--json"]);
    assert!(at("64") > at("0"));
}

#[test]
fn phases_can_be_left_out_and_requests_added() {
    let args =
        ["bench", "-m", TINY, "-p", "7", "-n", "3", "-r", "1", "--requests", "--streams", "2", "--json"];
    let file = run(&args).ok().json();
    let want = [
        ("prefill".to_owned(), 7, 1, 0, 2),
        ("decode".to_owned(), 3, 1, 0, 2),
        ("request".to_owned(), 7, 1, 0, 2),
        // Two rounds of two streams: a first token each, and two gaps each.
        ("request".to_owned(), 64, 2, 0, 4),
        ("inter_token".to_owned(), 3, 2, 0, 8),
    ];
    assert_eq!(cells(&file), want);
    assert!(cells(&run(&["bench", "-m", TINY, "-p", "0", "-n", "0", "--json"]).ok().json()).is_empty());
}

#[test]
fn the_machine_has_roofs() {
    let file = run(&["bench", "--roofline", "--threads", "2", "-r", "1", "--json"]).ok().json();
    let points = file["roofline"].as_array().unwrap();
    assert_eq!(points.len(), 2);
    assert!(points.iter().all(|p| p["read_gb_s"][0].as_f64().unwrap() > 0.1), "{points:?}");
    assert!(run(&["bench", "--roofline", "--threads", "1", "-r", "1"]).ok().text().contains("GB/s"));
}

/// What has no device is not measured on another in its place.
#[test]
fn devices_that_there_are_not_are_refused() {
    for device in ["cuda", "hip", "rocm", "metal", "cuda:0"] {
        let words: &[&str] = &[device, "no such devices yet", "cpu", "vulkan"];
        run(&["bench", "--roofline", "--device", device]).fails(2, words);
        run(&["bench", "-m", TINY, "--device", device]).fails(2, words);
    }
    run(&["bench", "--roofline", "--device", "vulkan:x"]).fails(2, &["vulkan:x", "vulkan:0"]);
    // Models do not run there yet, and nobody runs them elsewhere instead.
    run(&["bench", "-m", TINY, "--device", "vulkan"]).fails(2, &["no models yet", "cpu", "--roofline"]);
    run(&["bench", "-m", TINY, "--device", "vulkan:0", "--roofline"]).fails(2, &["--model"]);
    run(&["bench", "--roofline", "--device", "vulkan", "--threads", "2"]).fails(2, &["--threads", "cpu"]);
}

/// The number of Vulkan devices that there are; 0 where there is no Vulkan, which `HANZO_REQUIRE=all` does not forgive.
fn vulkan_devices() -> usize {
    let list = run(&["bench", "--device", "list", "--json"]).ok().json();
    let devices = list["devices"].as_array().unwrap();
    assert_eq!(devices[0]["device"], "cpu");
    let n = devices.len() - 1;
    if n == 0 {
        let why = &list["no_vulkan"];
        assert_ne!(std::env::var("HANZO_REQUIRE").as_deref(), Ok("all"), "{why} (Mesa's lavapipe will do)");
        println!("skipped: {why}");
    }
    for (i, d) in devices.iter().skip(1).enumerate() {
        assert_eq!(d["device"], format!("vulkan:{i}"));
        assert!(!d["vulkan"]["name"].as_str().unwrap().is_empty(), "{d}");
    }
    n
}

#[test]
fn a_vulkan_device_has_roofs() {
    let n = vulkan_devices();
    if n == 0 {
        return;
    }
    let file = run(&["bench", "--roofline", "--device", "vulkan", "-r", "2", "--json"]).ok().json();
    let manifest = &file["manifest"];
    assert!(manifest["device"].as_str().unwrap().starts_with("vulkan:"), "{manifest}");
    for name in ["engine", "version", "driver", "clock"] {
        assert!(!manifest[name].as_str().unwrap().is_empty(), "{name} of {manifest}");
    }
    assert!(manifest["read_bytes"].as_u64().unwrap() >= 1 << 20, "{manifest}");
    assert_eq!(file["cells"].as_array().unwrap().len(), 0);
    // As the CPU's, with no threads.
    let points = file["roofline"].as_array().unwrap();
    assert_eq!((points.len(), points[0]["threads"].as_u64()), (1, Some(0)));
    for name in ["read_gb_s", "int8_gop_s", "f32_gflop_s"] {
        let all = points[0][name].as_array().unwrap();
        assert_eq!(all.len(), 2);
        // What is wrong by orders of magnitude is a clock or a count, not a device.
        let plausible = |x: &Value| (0.01..1e7).contains(&x.as_f64().unwrap());
        assert!(all.iter().all(plausible), "{name}: {all:?}");
    }
    let last = format!("vulkan:{}", n - 1);
    let text = run(&["bench", "--roofline", "--device", &last, "-r", "1"]).ok();
    for part in [last.as_str(), "best", "median", "read, GB/s", "int8, Gop/s", "f32, GFLOP/s"] {
        assert!(text.text().contains(part), "{part} in {}", text.text());
    }
    let beyond = format!("vulkan:{n}");
    let words: &[&str] = &[&format!("no Vulkan device {n}"), "there are: 0 "];
    run(&["bench", "--roofline", "--device", &beyond]).fails(2, words);
}

/// Without a driver, or with one that is not there.
#[test]
fn a_machine_without_vulkan_devices_is_told() {
    let bogus = "/nonexistent/icd.json";
    // Loaders of different ages read different variables.
    let run = |args: &[&str]| {
        finish(hanzo().envs([("VK_ICD_FILENAMES", bogus), ("VK_DRIVER_FILES", bogus)]).args(args))
    };
    run(&["bench", "--roofline", "--device", "vulkan"]).fails(2, &["Vulkan"]);
    run(&["bench", "--roofline", "--device", "vulkan:0", "--json"]).fails(2, &["Vulkan"]);
    let list = run(&["bench", "--device", "list"]).ok();
    assert!(list.text().contains("cpu") && list.text().contains("none: "), "{}", list.text());
}

#[test]
fn explanations_attribute_all_of_the_time() {
    for args in [
        &["explain", TINY, "-p", "40", "-n", "6", "--json"][..],
        &["explain", "-p", "0", "-n", "6", "-b", "2", "-d", "9", "--json"],
    ] {
        let told = run(args).ok().json();
        let phases = told["phases"].as_array().unwrap();
        assert_eq!(phases.len(), if args.len() > 8 { 1 } else { 2 });
        for phase in phases {
            let number = |v: &Value, name: &str| v[name].as_f64().unwrap();
            let parts = phase["parts"].as_array().unwrap();
            let sum: f64 = parts.iter().map(|p| number(p, "seconds")).sum();
            assert!((sum / number(phase, "step_seconds") - 1.0).abs() < 1e-3, "{phase}");
            let launches: u64 = parts.iter().map(|p| p["launches"].as_u64().unwrap()).sum();
            assert_eq!(launches, told["launches"].as_u64().unwrap());
            for part in parts {
                let (share, gain) = (number(part, "share"), number(part, "surfaces"));
                assert!(gain >= 1.0 && gain <= 1.0 + share + 1e-9, "{part}");
            }
            assert!(number(phase, "bytes") > 1e5 && number(phase, "predicted_rate") > 0.0);
            let regimes = ["bandwidth-roofline", "compute-bound", "host/launch-bound", "busy-bound"];
            assert!(regimes.contains(&phase["regime"].as_str().unwrap()));
        }
    }
    let text = run(&["explain", "-p", "8", "-n", "2"]).ok();
    for part in ["roofs: read", "predicted", "attention", "ffn_down", "if at bound"] {
        assert!(text.text().contains(part), "{part} in {}", text.text());
    }
}
