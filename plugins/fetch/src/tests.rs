#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use super::*;

fn response(status: u16, kind: &str, body: &str) -> Response {
    Response { status, location: None, kind: Some(kind.to_owned()), body: body.into(), cut: false }
}

fn page(arguments: serde_json::Value) -> Page {
    serde_json::from_value(arguments).unwrap()
}

#[test]
fn a_page_is_text_and_long_ones_come_in_pieces() {
    let html = |_: &Url| Ok(response(200, "text/html; charset=utf-8", "<p>one</p><p>two</p>"));
    assert_eq!(page(json!({ "url": "https://a.test/" })).get(html), Ok("one\n\ntwo".into()));
    assert_eq!(page(json!({ "url": "https://a.test/", "raw": true })).get(html), Ok("<p>one</p><p>two</p>".into()));
    let first = page(json!({ "url": "https://a.test/", "limit": 5 })).get(html).unwrap();
    assert_eq!(first, "one\n\n\n[3 bytes of text follow; go on with offset 5]");
    assert_eq!(page(json!({ "url": "https://a.test/", "offset": 5 })).get(html), Ok("two".into()));
    assert_eq!(page(json!({ "url": "https://a.test/", "offset": 99 })).get(html), Ok(String::new()));
    let short = |_: &Url| Ok(response(200, "text/plain", "é€"));
    for limit in [0, 1] {
        let piece = page(json!({ "url": "https://a.test/", "limit": limit })).get(short).unwrap();
        assert_eq!(piece, "é\n[3 bytes of text follow; go on with offset 2]", "one character at least");
    }
}

#[test]
fn redirects_are_followed_to_an_end_and_never_to_plain_text() {
    let redirect = |to: &str| Response { location: Some(to.to_owned()), ..response(302, "text/html", "") };
    let get = |url: &Url| match url.path() {
        "/start" => Ok(redirect("next")),
        "/next" => Ok(response(200, "text/plain", "there")),
        "/down" => Ok(redirect("http://a.test/next")),
        "/file" => Ok(redirect("file:///etc/passwd")),
        _ => Ok(redirect("/loop")),
    };
    let follow = |path: &str| page(json!({ "url": format!("https://a.test{path}") })).get(get);
    assert_eq!(follow("/start"), Ok("there".into()));
    assert!(follow("/down").unwrap_err().contains("which is not encrypted"));
    assert!(follow("/file").unwrap_err().contains("which is not encrypted"));
    assert!(follow("/loop").unwrap_err().contains("more than 5 redirects"));
    assert!(page(json!({ "url": "file:///etc/passwd" })).get(get).unwrap_err().contains("is not an HTTP address"));
}

#[test]
fn what_cannot_be_read_says_what_it_is() {
    let missing = page(json!({ "url": "https://a.test/" })).get(|_| Ok(response(404, "text/html", "<h1>No page</h1>")));
    assert_eq!(missing, Err("https://a.test/ answered with status 404: # No page".into()));
    let image = |_: &Url| Ok(Response { body: vec![0x89, 0xff], ..response(200, "image/png", "") });
    let error = page(json!({ "url": "https://a.test/" })).get(image).unwrap_err();
    assert_eq!(error, "https://a.test/ is not UTF-8 text: 2 bytes of image/png, status 200");
    let cut = |_: &Url| Ok(Response { body: vec![b'a', 0xe2, 0x82], cut: true, ..response(200, "text/plain", "") });
    let said = page(json!({ "url": "https://a.test/" })).get(cut).unwrap();
    assert!(said.starts_with("a\n[the page is longer"), "{said}");
}

#[test]
fn the_tool_says_what_it_does_and_takes_nothing_else() {
    let fetch = Fetch::configure("{}").unwrap();
    let definitions: serde_json::Value = serde_json::from_str(&fetch.definitions().unwrap()).unwrap();
    assert_eq!(
        (&definitions[0]["name"], &definitions[0]["annotations"]["openWorldHint"]),
        (&json!("fetch"), &json!(true))
    );
    assert_eq!(fetch.call(&mut (), "post", "{}"), Err(Failure::UnknownTool));
    let Err(Failure::InvalidArguments(why)) = fetch.call(&mut (), "fetch", r#"{"url":"no url"}"#) else { panic!() };
    assert!(why.starts_with("arguments.url: "), "{why}");
}
