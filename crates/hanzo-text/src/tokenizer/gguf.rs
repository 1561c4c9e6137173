//! Reads a [`Vocab`] from the metadata of a GGUF file.

use super::{SpecialIds, TokenList, TokenType, Tokenizer, TokenizerError, Vocab};
use hanzo_gguf::{Error as GgufError, Metadata};

impl From<GgufError> for TokenizerError {
    fn from(error: GgufError) -> Self {
        Self::Metadata(error.to_string())
    }
}

impl Vocab {
    /// Collects the `tokenizer.ggml.*` keys.
    ///
    /// # Errors
    /// [`TokenizerError::Metadata`] names a key that is missing or of the wrong type; [`TokenizerError::TokenTooLong`]
    /// and [`TokenizerError::TooLarge`] keep the copy bounded.
    pub fn from_gguf(metadata: &Metadata) -> Result<Self, TokenizerError> {
        let strings = |key: &str| -> Result<TokenList, TokenizerError> {
            match metadata.get_strings(key)? {
                Some(strings) => TokenList::from_strings(strings.iter()),
                None => Ok(TokenList::new()),
            }
        };
        let flag = |key: &str| metadata.get_bool(key);
        let types = match metadata.get_array("tokenizer.ggml.token_type")? {
            Some(array) => array.to_i32_vec()?.into_iter().map(TokenType::from_gguf).collect(),
            None => Vec::new(),
        };
        let tokens = metadata.required_strings("tokenizer.ggml.tokens")?;
        Ok(Self {
            model: metadata.required_str("tokenizer.ggml.model")?.to_owned(),
            pre: metadata.get_str("tokenizer.ggml.pre")?.map(str::to_owned),
            model_name: metadata.get_str("general.name")?.map(str::to_owned),
            tokens: TokenList::from_strings(tokens.iter())?,
            scores: scores(metadata)?,
            token_types: types,
            merges: strings("tokenizer.ggml.merges")?,
            special: special_ids(metadata)?,
            add_bos: flag("tokenizer.ggml.add_bos_token")?,
            add_eos: flag("tokenizer.ggml.add_eos_token")?,
            add_sep: flag("tokenizer.ggml.add_sep_token")?,
            add_space_prefix: flag("tokenizer.ggml.add_space_prefix")?,
            remove_extra_whitespaces: flag("tokenizer.ggml.remove_extra_whitespaces")?,
            lowercase: flag("tokenizer.ggml.normalizer.lowercase")?,
            strip_accents: flag("tokenizer.ggml.normalizer.strip_accents")?,
            nfc: false,
            precompiled_charsmap: charsmap(metadata)?,
        })
    }
}

impl Tokenizer {
    /// The tokenizer that a GGUF file describes.
    ///
    /// # Errors
    /// As [`Vocab::from_gguf`] and [`Tokenizer::new`].
    pub fn from_gguf(metadata: &Metadata) -> Result<Self, TokenizerError> {
        Self::new(Vocab::from_gguf(metadata)?)
    }
}

/// Scores are floats, in a few files integers.
fn scores(metadata: &Metadata) -> Result<Vec<f32>, TokenizerError> {
    let Some(array) = metadata.get_array("tokenizer.ggml.scores")? else { return Ok(Vec::new()) };
    match array.to_f32_vec() {
        Ok(scores) => Ok(scores),
        Err(not_floats) => match array.to_i32_vec() {
            Ok(scores) => Ok(scores.into_iter().map(|score| score as f32).collect()),
            Err(_) => Err(not_floats.into()),
        },
    }
}

/// SentencePiece's table, as bytes of either sign.
fn charsmap(metadata: &Metadata) -> Result<Vec<u8>, TokenizerError> {
    let key = "tokenizer.ggml.precompiled_charsmap";
    let Some(array) = metadata.get_array(key)? else { return Ok(Vec::new()) };
    if array.element().size() != Some(1) {
        return Err(TokenizerError::Metadata(format!(
            "{key}: expected an array of bytes, found {:?}",
            array.element()
        )));
    }
    Ok(array.raw().to_vec())
}

fn special_ids(metadata: &Metadata) -> Result<SpecialIds, TokenizerError> {
    // Some converters write -1, or its 32 bits, for "none".
    let id = |keys: &[&str]| -> Result<Option<u32>, TokenizerError> {
        for key in keys {
            let Some(id) = metadata.get_i64(key)? else { continue };
            match u32::try_from(id) {
                Ok(u32::MAX) => {}
                Ok(id) => return Ok(Some(id)),
                Err(_) if id == -1 => {}
                Err(_) => {
                    return Err(TokenizerError::Metadata(format!("{key}: {id} is not a token id")));
                }
            }
        }
        Ok(None)
    };
    Ok(SpecialIds {
        bos: id(&["tokenizer.ggml.bos_token_id", "tokenizer.ggml.cls_token_id"])?,
        eos: id(&["tokenizer.ggml.eos_token_id"])?,
        eot: id(&["tokenizer.ggml.eot_token_id"])?,
        eom: id(&["tokenizer.ggml.eom_token_id"])?,
        unk: id(&["tokenizer.ggml.unknown_token_id"])?,
        // The first spelling is the container's own.
        sep: id(&["tokenizer.ggml.seperator_token_id", "tokenizer.ggml.separator_token_id"])?,
        pad: id(&["tokenizer.ggml.padding_token_id"])?,
        mask: id(&["tokenizer.ggml.mask_token_id"])?,
        fim_pre: id(&["tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"])?,
        fim_suf: id(&["tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id"])?,
        fim_mid: id(&["tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"])?,
        fim_pad: id(&["tokenizer.ggml.fim_pad_token_id"])?,
        fim_rep: id(&["tokenizer.ggml.fim_rep_token_id"])?,
        fim_sep: id(&["tokenizer.ggml.fim_sep_token_id"])?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hanzo_gguf::{GgufFile, GgufWriter, MetadataValue};

    fn read(set: impl FnOnce(&mut GgufWriter)) -> Result<Vocab, TokenizerError> {
        let mut writer = GgufWriter::new();
        writer.set("tokenizer.ggml.model", "llama").unwrap();
        writer.set("tokenizer.ggml.tokens", MetadataValue::strings(["<unk>", "<s>", "\u{2581}a"])).unwrap();
        set(&mut writer);
        let bytes = writer.to_bytes::<&[u8]>(&[]).unwrap();
        Vocab::from_gguf(GgufFile::from_bytes(bytes).unwrap().metadata())
    }

    #[test]
    fn keys_are_read() {
        let v = read(|w| {
            w.set("tokenizer.ggml.scores", &[0f32, 0.0, -1.5][..]).unwrap();
            w.set("tokenizer.ggml.token_type", &[2i32, 3, 1][..]).unwrap();
            w.set("tokenizer.ggml.bos_token_id", 1u32).unwrap();
            w.set("tokenizer.ggml.eos_token_id", -1i32).unwrap();
            w.set("tokenizer.ggml.padding_token_id", u32::MAX).unwrap();
            w.set("tokenizer.ggml.add_bos_token", false).unwrap();
        })
        .unwrap();
        assert_eq!(v.tokens.len(), 3);
        assert_eq!(v.scores, [0.0, 0.0, -1.5]);
        assert_eq!(v.token_types, [TokenType::Unknown, TokenType::Control, TokenType::Normal]);
        assert_eq!((v.special.bos, v.special.eos, v.special.pad), (Some(1), None, None));
        assert_eq!((v.add_bos, v.add_eos), (Some(false), None));
    }

    #[test]
    fn integer_scores_are_read() {
        let v = read(|w| {
            w.set("tokenizer.ggml.scores", &[0i32, 0, -2][..]).unwrap();
        });
        assert_eq!(v.unwrap().scores, [0.0, 0.0, -2.0]);
    }

    #[test]
    fn wrong_types_are_named() {
        for (key, value) in [
            ("tokenizer.ggml.tokens", MetadataValue::from(1u32)),
            ("tokenizer.ggml.scores", MetadataValue::strings(["x"])),
            ("tokenizer.ggml.token_type", MetadataValue::from(&[1f32][..])),
            ("tokenizer.ggml.merges", MetadataValue::from("a b")),
            ("tokenizer.ggml.bos_token_id", MetadataValue::from("1")),
            ("tokenizer.ggml.eos_token_id", MetadataValue::from(-2i32)),
            ("tokenizer.ggml.add_bos_token", MetadataValue::from(1u32)),
            ("tokenizer.ggml.precompiled_charsmap", MetadataValue::from(&[1u32][..])),
        ] {
            match read(|w| {
                w.set(key, value).unwrap();
            }) {
                Err(TokenizerError::Metadata(message)) => assert!(message.contains(key), "{message}"),
                other => panic!("{key}: {other:?}"),
            }
        }
    }
}
