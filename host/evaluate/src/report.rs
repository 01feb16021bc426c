//! Reports for other programs: SARIF, and one HTML file.

mod html;
mod sarif;

pub use html::html;
pub use sarif::sarif;
