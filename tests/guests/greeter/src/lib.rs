//! A component of one function, which greets whoever calls it.

wit_bindgen::generate!({
    path: "../../../wit",
    inline: "
        package guest:greeter;
        world greeter {
            import portcullis:plugin/caller@0.1.0;
            export greet: func() -> result<string, string>;
        }
    ",
    world: "guest:greeter/greeter",
    generate_all,
});

struct Greeter;

impl Guest for Greeter {
    fn greet() -> Result<String, String> {
        portcullis::plugin::caller::principal().map(|principal| format!("hello {principal}"))
    }
}

export!(Greeter);
