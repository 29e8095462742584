//! Programs of benchmark suites, as their authors wrote them: recipes say how each is built, run
//! and judged ([`Suite`]); a [`Workshop`] builds them from sources that the user has, and runs them
//! by one of several [`Way`]s.

mod compiler;
mod folders;
mod inputs;
mod life;
mod limited;
mod recipe;
mod told;
mod verdict;
mod ways;
mod workshop;

pub use compiler::{BuildError, Compiler};
pub use life::{DataPath, Exits, Life, LifeError, Work};
pub use recipe::{NAMES, Program, RecipeError, Scale, Suite};
pub use verdict::Verdict;
pub use ways::{Host, Way};
pub use workshop::{Workshop, WorkshopError};
