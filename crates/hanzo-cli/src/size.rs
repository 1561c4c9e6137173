//! Sizes as people type them.

/// Bytes of `512M`, `1.5GiB`, `64k` or `1000000`: the units are powers of 1024, with or without `B` or `iB`.
///
/// # Errors
/// What is wrong, for a flag's error message.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err("expected a size such as 512M, 1.5G or a number of bytes".to_owned()),
    };
    let value: f64 = number.parse().map_err(|_| "expected a size such as 512M, 1.5G or a number of bytes")?;
    let bytes = value * f64::from(shift).exp2();
    if (1.0..9e15).contains(&bytes) {
        Ok(bytes as u64)
    } else {
        Err("expected 1 byte to 8192 TiB".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("1000000", 1_000_000),
            ("64k", 65_536),
            ("512M", 512 << 20),
            ("1.5GiB", 3 << 29),
            (" 2 gb ", 2 << 30),
            ("1TiB", 1 << 40),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "M", "-5M", "5X", "1e9", "0", "0.1", "99999999T", "nan", "1..5G"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
