//! What the system lets a process have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets the process open as many files as it may: each connection is one. Returns how many that are.
pub fn raise_open_files() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    // Where it cannot be raised, it stays.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    getrlimit(Resource::Nofile).current
}
