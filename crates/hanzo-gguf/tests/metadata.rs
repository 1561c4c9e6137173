//! Typed access: what each accessor takes, and what its errors say.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use common::{Raw, array, string};
use hanzo_gguf::{Error, GgufFile, ValueType};

fn file() -> GgufFile {
    let raw = Raw::new()
        .key("u8", 0, &[200])
        .key("i8", 1, &[0xff])
        .key("u16", 2, &60_000u16.to_le_bytes())
        .key("i16", 3, &(-2i16).to_le_bytes())
        .key("u32", 4, &u32::MAX.to_le_bytes())
        .key("i32", 5, &(-3i32).to_le_bytes())
        .key("f32", 6, &1.5f32.to_le_bytes())
        .key("bool", 7, &[1])
        .key("text", 8, &string("grüße"))
        .key("bytes", 8, &string(b"ok\xff"))
        .key("u64", 10, &u64::MAX.to_le_bytes())
        .key("i64", 11, &i64::MIN.to_le_bytes())
        .key("f64", 12, &0.1f64.to_le_bytes())
        .key("ints", 9, &array(5, 3, &[1i32, -1, 7].map(i32::to_le_bytes).concat()))
        .key("floats", 9, &array(6, 2, &[0.5f32, 2.0].map(f32::to_le_bytes).concat()))
        .key("flags", 9, &array(7, 2, &[1, 0]))
        .key(
            "strings",
            9,
            &array(8, 20, &(0..20).map(|i| string("x".repeat(i))).collect::<Vec<_>>().concat()),
        )
        .key("tokens", 9, &array(8, 2, &[string("a"), string(b"b\x80")].concat()))
        .key(
            "nested",
            9,
            &array(9, 2, &[array(8, 2, &[string("p"), string("q")].concat()), array(4, 0, &[])].concat()),
        )
        .key("empty", 9, &array(5, 0, &[]));
    GgufFile::from_bytes(raw.build()).unwrap()
}

#[test]
fn integers_of_any_width_where_they_fit() {
    let file = file();
    let metadata = file.metadata();
    assert_eq!(metadata.required_u32("u8").unwrap(), 200);
    assert_eq!(metadata.required_i32("i8").unwrap(), -1);
    assert_eq!(metadata.required_u64("u16").unwrap(), 60_000);
    assert_eq!(metadata.required_usize("u32").unwrap(), u32::MAX as usize);
    assert_eq!(metadata.required_i64("u32").unwrap(), i64::from(u32::MAX));
    assert_eq!(metadata.required_u64("u64").unwrap(), u64::MAX);
    assert_eq!(metadata.required_i64("i64").unwrap(), i64::MIN);
    for (result, key) in [
        (metadata.required_u32("i16").map(drop), "i16"),
        (metadata.required_u32("u64").map(drop), "u64"),
        (metadata.required_i32("u32").map(drop), "u32"),
        (metadata.required_i64("u64").map(drop), "u64"),
        (metadata.required_u8("u16").map(drop), "u16"),
        (metadata.required_usize("i32").map(drop), "i32"),
    ] {
        let error = result.unwrap_err();
        assert!(matches!(&error, Error::OutOfRange { key: k, .. } if k == key), "{error:?}");
    }
    assert_eq!(metadata.get_u32("absent").unwrap(), None);
    let error = metadata.required_u32("absent").unwrap_err().to_string();
    assert_eq!(error, "metadata key `absent` is missing; u32 expected");
    // key length, key, type: 8 + 2 + 4 after the 24 bytes of the preamble.
    let error = metadata.required_str("u8").unwrap_err().to_string();
    assert_eq!(error, "metadata key `u8` at byte 38 is u8; string expected");
    let error = metadata.required_u32("ints").unwrap_err().to_string();
    assert!(error.ends_with("is array of i32; u32 expected"), "{error}");
}

#[test]
fn floats_flags_and_text() {
    let file = file();
    let metadata = file.metadata();
    assert_eq!(metadata.required_f32("f32").unwrap(), 1.5);
    assert_eq!(metadata.required_f32("f64").unwrap(), 0.1f32);
    assert!(
        matches!(metadata.get_f32("u32"), Err(Error::WrongType { found, .. }) if found.ty == ValueType::U32)
    );
    assert!(metadata.required_bool("bool").unwrap());
    assert!(metadata.get_bool("u8").is_err());
    assert_eq!(metadata.required_str("text").unwrap(), "grüße");
    assert_eq!(metadata.required_bytes("bytes").unwrap(), b"ok\xff");
    assert!(matches!(metadata.get_str("bytes"), Err(Error::NotUtf8 { valid_up_to: 2, .. })));
    assert_eq!(metadata.get("f32").unwrap().to_string(), "1.5");
    assert_eq!(metadata.get("text").unwrap().to_string(), "\"grüße\"");
}

#[test]
fn arrays() {
    let file = file();
    let metadata = file.metadata();
    let ints = metadata.required_array("ints").unwrap();
    assert_eq!(ints.to_i32_vec().unwrap(), [1, -1, 7]);
    assert_eq!(ints.to_i64_vec().unwrap(), [1, -1, 7]);
    match ints.to_u32_vec().unwrap_err() {
        Error::OutOfRange { key, offset, value: -1, .. } => {
            assert_eq!((key.as_str(), offset), ("ints", ints.offset() + 4));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(metadata.required_array("floats").unwrap().to_f32_vec().unwrap(), [0.5, 2.0]);
    assert_eq!(metadata.required_array("flags").unwrap().to_bool_vec().unwrap(), [true, false]);
    assert!(metadata.required_array("floats").unwrap().to_u32_vec().is_err());
    assert!(metadata.required_array("ints").unwrap().strings().is_err());
    assert!(metadata.required_array("empty").unwrap().to_u32_vec().unwrap().is_empty());
    assert!(metadata.required_array("empty").unwrap().to_f32_vec().is_err());
    assert!(metadata.required_array("u8").is_err());

    let strings = metadata.required_strings("strings").unwrap();
    for i in 0..20 {
        assert_eq!(strings.get_str(i).unwrap(), Some("x".repeat(i).as_str()));
    }
    assert_eq!(strings.get(20), None);
    assert_eq!(strings.iter().len(), 20);

    let tokens = metadata.required_strings("tokens").unwrap();
    assert_eq!(tokens.iter().collect::<Vec<_>>(), [&b"a"[..], b"b\x80"]);
    let texts: Vec<_> = tokens.iter_str().collect();
    assert_eq!(*texts[0].as_ref().unwrap(), "a");
    let place = metadata.required_array("tokens").unwrap().offset() + 8 + 1 + 8;
    assert!(matches!(texts[1], Err(Error::NotUtf8 { offset, valid_up_to: 1, .. }) if offset == place));
    assert!(matches!(tokens.get_str(1), Err(Error::NotUtf8 { offset, .. }) if offset == place));

    let nested = metadata.required_array("nested").unwrap();
    assert_eq!(hanzo_gguf::Value::Array(nested).to_string(), "[[\"p\", \"q\"], []]");
    assert_eq!(nested.element(), ValueType::Array);
}

#[test]
fn order_and_look_up() {
    let file = file();
    let keys: Vec<&str> = file.metadata().iter().map(|item| item.key).collect();
    assert_eq!(keys[..3], ["u8", "i8", "u16"]);
    assert_eq!(keys.len(), 20);
    assert!(keys.iter().all(|key| file.metadata().contains(key)));
    assert!(!file.metadata().contains("u"));
    assert!(file.tensor("absent").is_none());
    assert!(matches!(file.required_tensor("absent"), Err(Error::NoTensor { tensor }) if tensor == "absent"));
}
