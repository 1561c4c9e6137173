//! Where the Hub is and where its files are kept, from the variables that `huggingface_hub` reads.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Error, Result};

/// The Hub's address where `HF_ENDPOINT` names no mirror.
const ENDPOINT: &str = "https://huggingface.co";

/// How failures that may pass are met.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    /// Tries without progress before giving up.
    pub attempts: u32,
    /// Wait after the first failure; each further one doubles it.
    pub base: Duration,
    /// Longest wait, also where the Hub asks for more: then it is an error.
    pub longest: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { attempts: 5, base: Duration::from_secs(1), longest: Duration::from_secs(120) }
    }
}

/// Where variables come from; empty ones are left out.
type Vars<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// A secret that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(String);

impl Token {
    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// How the Hub is reached.
#[derive(Clone, Debug)]
pub struct HubConfig {
    /// `https://huggingface.co`, or a mirror; no slash at the end.
    pub endpoint: String,
    /// The Hub's cache, which has a folder `models--ORG--REPO` for each repository; `None` where the environment names no
    /// home.
    pub cache: Option<PathBuf>,
    /// Whether the network must not be used.
    pub offline: bool,
    /// Longest silence of a connection.
    pub timeout: Duration,
    /// How failures that may pass are met.
    pub retry: Retry,
    pub(crate) token: Option<Token>,
}

impl HubConfig {
    /// From `HF_ENDPOINT`, `HF_TOKEN` (or the file `HF_TOKEN_PATH`, or `token` in `HF_HOME`), `HF_HUB_CACHE`, `HF_HOME`,
    /// `XDG_CACHE_HOME`, `HOME`, `HF_HUB_OFFLINE`, `HF_HUB_DOWNLOAD_TIMEOUT` (seconds).
    ///
    /// # Errors
    /// A variable with a value that makes no sense, or a token file that cannot be read.
    pub fn from_env() -> Result<Self> {
        Self::from_vars(&|name| std::env::var_os(name))
    }

    /// As [`from_env`](Self::from_env), from any source of variables.
    ///
    /// # Errors
    /// As there.
    pub fn from_vars(var: &dyn Fn(&str) -> Option<OsString>) -> Result<Self> {
        let var = |name: &str| var(name).filter(|value| !value.is_empty());
        let text = |name: &'static str| match var(name).map(OsString::into_string) {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text)),
            Some(Err(_)) => Err(Error::Setting { name, why: "it is not UTF-8".to_owned() }),
        };
        let home = hf_home(&var);
        let cache = hub_cache(&var);
        let path = |name: &str| path_of(&var, name);
        let endpoint = match text("HF_ENDPOINT")? {
            None => ENDPOINT.to_owned(),
            Some(url) => {
                let url = url.trim_end_matches('/');
                let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
                if host.is_none_or(|host| host.is_empty() || host.contains(['@', '?', '#', ' '])) {
                    let why = format!("`{url}` is no http:// or https:// address");
                    return Err(Error::Setting { name: "HF_ENDPOINT", why });
                }
                url.to_owned()
            }
        };
        let token = match text("HF_TOKEN")?
            .map_or_else(|| text("HUGGING_FACE_HUB_TOKEN"), |token| Ok(Some(token)))?
        {
            Some(token) => checked_token("HF_TOKEN", &token)?,
            None => match path("HF_TOKEN_PATH").or_else(|| home.as_ref().map(|dir| dir.join("token"))) {
                Some(file) => match std::fs::read_to_string(&file) {
                    Ok(token) => checked_token("the token file", &token)?,
                    // No token file is the rule, not an error.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
                    Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => None,
                    Err(error) => return Err(Error::cache("read the token in", file)(error)),
                },
                None => None,
            },
        };
        let flag = |name: &'static str| -> Result<bool> {
            Ok(match text(name)?.unwrap_or_default().to_ascii_lowercase().as_str() {
                "" | "0" | "off" | "no" | "false" => false,
                "1" | "on" | "yes" | "true" => true,
                other => return Err(Error::Setting { name, why: format!("`{other}` is neither 1 nor 0") }),
            })
        };
        let timeout = match text("HF_HUB_DOWNLOAD_TIMEOUT")? {
            None => Duration::from_secs(30),
            Some(seconds) => match seconds.trim().parse::<u32>() {
                Ok(seconds) if seconds > 0 => Duration::from_secs(u64::from(seconds)),
                _ => {
                    let why = format!("`{seconds}` is no number of seconds");
                    return Err(Error::Setting { name: "HF_HUB_DOWNLOAD_TIMEOUT", why });
                }
            },
        };
        let offline = flag("HF_HUB_OFFLINE")?;
        Ok(Self { endpoint, cache, offline, timeout, retry: Retry::default(), token })
    }
}

/// The path in a variable; `~/` is the user's home.
fn path_of(var: Vars<'_>, name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(var(name)?);
    Some(match (path.strip_prefix("~"), user_home(var)) {
        (Ok(rest), Some(user)) => user.join(rest),
        _ => path,
    })
}

fn user_home(var: Vars<'_>) -> Option<PathBuf> {
    var("HOME").or_else(|| var("USERPROFILE")).map(PathBuf::from)
}

/// Where `huggingface_hub` keeps all that it keeps.
fn hf_home(var: Vars<'_>) -> Option<PathBuf> {
    path_of(var, "HF_HOME")
        .or_else(|| path_of(var, "XDG_CACHE_HOME").map(|dir| dir.join("huggingface")))
        .or_else(|| user_home(var).map(|dir| dir.join(".cache").join("huggingface")))
}

/// Where it keeps repositories. `var` gives no empty values.
fn hub_cache(var: Vars<'_>) -> Option<PathBuf> {
    path_of(var, "HF_HUB_CACHE")
        .or_else(|| path_of(var, "HUGGINGFACE_HUB_CACHE"))
        .or_else(|| hf_home(var).map(|dir| dir.join("hub")))
}

/// The Hub's cache, as [`HubConfig::from_env`] finds it.
pub(crate) fn hub_cache_from_env() -> Option<PathBuf> {
    hub_cache(&|name| std::env::var_os(name).filter(|value| !value.is_empty()))
}

fn checked_token(name: &'static str, token: &str) -> Result<Option<Token>> {
    let token = token.trim();
    if !token.chars().all(|c| c.is_ascii_graphic()) {
        return Err(Error::Setting { name, why: "a token has only visible ASCII characters".to_owned() });
    }
    Ok((!token.is_empty()).then(|| Token(token.to_owned())))
}

/// Where what is the user's own lies: `HANZO_HOME`, or else `hanzo` in the user's cache directory; `None` where the
/// environment names no home.
#[must_use]
pub fn home() -> Option<PathBuf> {
    let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    var("HANZO_HOME")
        .or_else(|| var("XDG_CACHE_HOME").map(|dir| dir.join("hanzo")))
        .or_else(|| var("LOCALAPPDATA").filter(|_| cfg!(windows)).map(|dir| dir.join("hanzo")))
        .or_else(|| var("HOME").map(|dir| dir.join(".cache").join("hanzo")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn config(vars: &[(&str, &str)]) -> Result<HubConfig> {
        HubConfig::from_vars(&|name| {
            vars.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn the_cache_is_where_huggingface_hub_has_it() {
        for (vars, expected) in [
            (&[][..], None),
            (&[("HOME", "/h")], Some("/h/.cache/huggingface/hub")),
            (&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")], Some("/x/huggingface/hub")),
            (&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x"), ("HF_HOME", "~/f")], Some("/h/f/hub")),
            (&[("HF_HOME", "/f"), ("HF_HUB_CACHE", "/c")], Some("/c")),
            (&[("HF_HOME", "/f"), ("HF_HUB_CACHE", "")], Some("/f/hub")),
        ] {
            assert_eq!(config(vars).unwrap().cache, expected.map(PathBuf::from), "{vars:?}");
        }
    }

    #[test]
    fn the_token_comes_from_the_variable_or_the_file_and_is_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().to_str().unwrap();
        assert_eq!(config(&[("HF_HOME", home)]).unwrap().token, None);
        std::fs::write(dir.path().join("token"), "hf_file\n").unwrap();
        let of_file = config(&[("HF_HOME", home)]).unwrap();
        assert_eq!(of_file.token.as_ref().map(Token::header).as_deref(), Some("Bearer hf_file"));
        let of_var = config(&[("HF_HOME", home), ("HF_TOKEN", " hf_var ")]).unwrap();
        assert_eq!(of_var.token.as_ref().map(Token::header).as_deref(), Some("Bearer hf_var"));
        assert!(!format!("{of_var:?}").contains("hf_var"));
        let elsewhere = dir.path().join("other");
        std::fs::write(&elsewhere, "hf_other").unwrap();
        let of_path = config(&[("HF_HOME", home), ("HF_TOKEN_PATH", elsewhere.to_str().unwrap())]).unwrap();
        assert_eq!(of_path.token.as_ref().map(Token::header).as_deref(), Some("Bearer hf_other"));
    }

    #[test]
    fn values_that_make_no_sense_are_named() {
        for (name, value) in [
            ("HF_ENDPOINT", "ftp://x"),
            ("HF_ENDPOINT", "https://"),
            ("HF_ENDPOINT", "https://user@evil"),
            ("HF_TOKEN", "two words"),
            ("HF_HUB_OFFLINE", "maybe"),
            ("HF_HUB_DOWNLOAD_TIMEOUT", "-1"),
        ] {
            let error = config(&[(name, value)]).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        assert!(config(&[("HF_HUB_OFFLINE", "YES")]).unwrap().offline);
        assert_eq!(config(&[("HF_ENDPOINT", "http://m/")]).unwrap().endpoint, "http://m");
    }
}
