//! The description that a plugin may carry of itself.

/// Puts a description of the plugin into the component, which `portcullis plugin inspect` shows: a JSON object with
/// `name`, `version`, `phases`, and `settings`, a JSON Schema without `$ref`. The broker refuses settings that do not fit it.
///
/// ```
/// portcullis_plugin::describe!(r#"{ "name": "no-deletes", "version": "1.0.0", "settings": { "maxProperties": 0 } }"#);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! describe {
    ($json:expr) => {
        #[cfg(target_arch = "wasm32")]
        #[allow(unsafe_code, reason = "the section has a name that nothing else has")]
        const _: () = {
            const TEXT: &str = $json;

            #[used]
            #[unsafe(link_section = "portcullis:description")]
            static DESCRIPTION: [u8; TEXT.len()] = $crate::__bytes(TEXT);
        };

        #[cfg(not(target_arch = "wasm32"))]
        const _: &str = $json;
    };
}

/// Returns the bytes of a text as an array of their number.
#[doc(hidden)]
#[must_use]
#[expect(clippy::indexing_slicing, reason = "a section of another length does not compile")]
pub const fn __bytes<const N: usize>(text: &str) -> [u8; N] {
    let (mut bytes, mut place) = ([0; N], 0);
    while place < N {
        bytes[place] = text.as_bytes()[place];
        place += 1;
    }
    bytes
}
