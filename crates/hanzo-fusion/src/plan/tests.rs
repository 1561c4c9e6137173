//! Rules on toy graphs, and the arena.
