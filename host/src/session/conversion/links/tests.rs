#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::*;

const NAMED: [&str; 2] = ["ok.example", "*.docs.example"];

fn shown(text: &str) -> String {
    let named = NAMED.map(str::to_owned);
    let hosts = DeclaredHosts { own: vec!["own.example"], named: &named };
    as_text(text, &hosts).map_or_else(|| text.to_owned(), |(text, _)| text)
}

#[test]
fn a_link_to_another_host_is_text_and_one_to_a_declared_host_stays() {
    for (link, text) in [
        ("![x](https://evil.example/?d=1) y", "![x] (`https://evil.example/?d=1`) y"),
        ("[a](<https://evil.example>)", "[a] (`https://evil.example`)"),
        ("[a](\n  http://evil.example \"title\")", "[a] (\n  `http://evil.example` \"title\")"),
        (
            "[![i](https://evil.example/1)](https://evil.example/2)",
            "[![i] (`https://evil.example/1`)] (`https://evil.example/2`)",
        ),
        ("[a][r]\n\n[r]: https://evil.example/x", "[a][r]\n\n[r] : `https://evil.example/x`"),
        ("[r]:\n//evil.example/x 'title'", "[r] :\n`//evil.example/x` 'title'"),
        ("see <https://evil.example/x>.", "see `https://evil.example/x`."),
        ("<img src=\"https://evil.example/x\">", "<img src-=\"https://evil.example/x\">"),
        ("<A\nHREF = '//evil.example'>", "<A\nHREF -= '//evil.example'>"),
        ("<img srcset=\"a.png 1x, https://evil.example 2x\">", "<img srcset-=\"a.png 1x, https://evil.example 2x\">"),
        ("<p style=\"background:u\\72l(//evil.example)\">", "<p style-=\"background:u\\72l(//evil.example)\">"),
        ("<iframe srcdoc='x'>", "&lt;iframe srcdoc='x'>"),
        ("<META http-equiv=refresh>", "&lt;META http-equiv=refresh>"),
        ("[a](javascript:alert)", "[a] (`javascript:alert`)"),
        ("[a](mailto:a@b.example)", "[a] (`mailto:a@b.example`)"),
        ("> ![x](\n> https://evil.example)", "> ![x] (\n> `https://evil.example`)"),
        ("> [r]:\n>> https://evil.example/x", "> [r] :\n>> `https://evil.example/x`"),
        ("> <img src=\"\n> https://evil.example\">", "> <img src-=\"\n> https://evil.example\">"),
        ("<img attributionsrc=\"https://evil.example\">", "<img attributionsrc-=\"https://evil.example\">"),
        ("<img onerror=\"fetch(a)\">", "<img onerror-=\"fetch(a)\">"),
        ("<https://evil.example> [x](//evil.example)", "`https://evil.example` [x] (`//evil.example`)"),
    ] {
        assert_eq!(shown(link), text);
        assert_eq!(shown(text), text, "a text that was shown stays");
    }
    for same in [
        "![x](https://ok.example/a?b=c&d) [y](HTTP://OK.Example:8080#z) [z](https://own.example)",
        "[x](https://a.docs.example/x) [y](https://ok.example./x)",
        "[x](a/b.md) ![y](../c.png \"title\") [z](#part) [q](?a=https://evil.example) [r](/root)",
        "<https://ok.example/x> <img src=\"a.png\"> <a href='/x'>y</a> <a href=https://ok.example>",
        "[INFO]: ready\n[12]: 10:30\n[note]: this: that\nlist[0](x) map[a]: b",
        "an address: https://evil.example/x, src=\"https://evil.example\" and a < b > c",
        "[x](docs/a.md:12) ![y](a/b&c 'title') [z](\u{e9}/x.md) <img src='a b.png' srcset='a.png'> [r](/)",
        "<a href='https://ok.example'>x</a> <a href=\"https://own.example\"> <https://ok.example> [x](\u{a0}a.md)",
        "[r]: https://ok.example\n[x](https://ok.example 'title') > [x](\n> https://ok.example/a)\n[s]: https://own.example",
        "<xs:element name=\"a\"/> Vec<Option<u8>> {\"url\":\"https://evil.example\"} x = https://evil.example",
    ] {
        assert_eq!(shown(same), same);
    }
}

#[test]
fn no_spelling_of_an_address_is_taken_for_a_declared_one() {
    for link in [
        "[x](https://ok.example.evil.example/)",
        "[x](https://ok.example@evil.example/)",
        "[x](https://ok.example\\@evil.example/)",
        "[x](https://ok.example%2eevil.example/)",
        "[x](https://ok.example\u{3002}evil.example/)",
        "[x](https://\u{43e}k.example/)",
        "[x](https://docs.example/)",
        "[x](https://evildocs.example/)",
        "[x](&#104;ttps://evil.example/)",
        "[x](h&#x74;tps&colon;//evil.example/)",
        "[x](https&#58;//evil.example/)",
        "[x](https\\://evil.example/)",
        "[x](https:evil.example/)",
        "[x](https:/evil.example/)",
        "[x](//evil.example/)",
        "[x](/\\evil.example/)",
        "[x](\\\\evil.example/)",
        "[x](<ht\ttps://evil.example/>)",
        "[x](</\t/evil.example/>)",
        "[x](<https://ok.example\t.evil.example/>)",
        "[x](https://[2001:db8::1]/)",
        "[x](https:///evil.example/)",
        "<img src=\" &#104;ttps://evil.example\">",
        "<img src=\"ht\ntps://evil.example\">",
        "<img alt=\">\" src=https://evil.example>",
        "<img a=b\" alt=\"> src=x\" src=https://evil.example>",
        "<svg><image xlink:href='https://evil.example'/></svg>",
        "<img/src=https://evil.example>",
        "<img src                                                   =https://evil.example>",
        "![x](/&#47;evil.example/x)",
        "![x](/&bsol;evil.example/x)",
        "![x](/&#47evil.example/x)",
        "<img src=\"/&#47;evil.example/x\">",
        "<img src='/&bsol;evil.example/x'>",
        "> ![x](\n> //evil.example/x)",
        "![x][r]\n\n>[r]:\n>//evil.example/x",
        "> > [r]:\n> > https://evil.example/x",
        "> <img src=\n> \"https://evil.example/x\">",
        "> <img src\n> =\n> \"https://evil.example/x\">",
        "> <img\n> alt=x src=\"\n> https://evil.example/x\">",
        "> <img src=\"/\n> /evil.example/x\">",
        "![x](https://ok.example\"@evil.example/x)",
        "![x](https://ok.example'@evil.example/x)",
        "![x](https://ok.example>@evil.example/x)",
        "![x](<https://ok.example)@evil.example/x>)",
        "![x](<https://ok.example>@evil.example/x>)",
        "![x](<https://ok.example @evil.example/x>)",
        "[r]: https://ok.example)@evil.example/x",
        "[r]: <https://ok.example> \"a@evil.example/x>",
        "<img src=\"https://ok.example)@evil.example/x\">",
        "<img src=\"https://ok.example'@evil.example/x\">",
        "<img src='https://ok.example\"@evil.example/x'>",
        "<img src=\"https://ok.example>@evil.example/x\">",
        "<img src=\"https://ok.example @evil.example/x\">",
        "<img src=https://ok.example'@evil.example/x>",
        "<img srcset=\"x' 1x, //evil.example 2x\">",
        "![x](\u{a0}//evil.example/x)",
        "![x](\u{2003}/\\evil.example/x)",
        "![x](\u{feff}https://evil.example/x)",
        "![x](\u{b}https://evil.example/x)",
        "![x](\u{c}//evil.example/x)",
        "![x](/\u{a0}/evil.example/x)",
        "![x](.//evil.example/x)",
        "[r]:\u{a0}//evil.example/x",
        "[r]:\u{b}https://evil.example/x",
        "<img src=\"https://ok.exam",
        "<img src=\"/",
    ] {
        assert_ne!(shown(link), link);
    }
}

#[test]
fn a_link_that_begins_in_one_text_and_ends_in_another_is_taken_apart() {
    for (first, second) in
        [("[x](https://ev", "il.example/)"), ("[x](", "https://evil.example/)"), ("[x](htt", "ps://evil.example)")]
    {
        assert!(shown(first).starts_with("[x] ("), "{first} {second}");
    }
    assert_eq!(shown("(https://evil.example)"), " (`https://evil.example`)");
    assert_eq!(shown(": https://evil.example"), " : `https://evil.example`");
    assert_eq!(shown("(in brackets) see"), "(in brackets) see");
}

/// Whatever is quoted in front of it, the address of an element is seen.
#[test]
fn an_address_in_an_element_hides_no_attribute() {
    for hidden in [
        "<img x](https://e.example/?a=' > ' src=\"//evil.example/x\">",
        "<img x](https://e.example/src=//evil.example/x >",
        "<img <https://e.example/ src=//evil.example/x>",
        "<img <https://e.example/src=//evil.example/x>",
        "<img x](\n> https://e.example/' > ' src=//evil.example/x>",
    ] {
        assert!(shown(hidden).contains("src-="), "{hidden}: {}", shown(hidden));
    }
}

#[test]
fn an_icon_is_fetched_from_declared_hosts_alone() {
    let named = NAMED.map(str::to_owned);
    let hosts = DeclaredHosts { own: Vec::new(), named: &named };
    assert_eq!(icon("https://evil.example/i.png", &hosts).as_deref(), Some("not-fetched:https://evil.example/i.png"));
    for same in ["https://ok.example/i.png", "data:image/png;base64,AAAA"] {
        assert_eq!(icon(same, &hosts), None);
    }
    for other in
        ["data:text/html,x", " //evil.example/i", "https://ok.example\"@evil.example/i", "https://ok.example)@e"]
    {
        assert!(icon(other, &hosts).is_some(), "{other}");
    }
    assert_eq!(icon("https://ok.example", &hosts), None);
}

/// If the time grew with the square of the length, each of these would take minutes, and all take seconds.
#[test]
fn a_mebibyte_of_brackets_is_shown_in_linear_time() {
    for part in [
        "[",
        "](",
        "]( ",
        "]:",
        "]: ",
        "](a",
        "<a",
        "<a \"",
        "<",
        "=",
        "<a =",
        "<a src=",
        "<a src= ",
        "![](https://e/",
        "(",
        "](a/",
        "[a]:<",
        "<https:",
        "](<",
        "](\n>",
        "](>",
        "<a\n>",
        "<a >= >",
        "<a src=\"'",
        "\u{a0}](\u{a0}",
    ] {
        let text = part.repeat((1 << 20) / part.len());
        assert!(shown(&text).len() >= text.len() - 2, "{part}");
    }
}

proptest! {
    #[test]
    fn any_text_can_be_shown_and_loses_nothing(parts in prop::collection::vec(
        prop::sample::select(vec!["[", "]", "(", ")", "]: ", "<", ">", "img src=", "\"", "https://evil.example", "//e", "é", " ", "\n", "`", "&", "\\", "a"]), 0..24))
    {
        let text: String = parts.concat();
        let once = shown(&text);
        let plain = |text: &str| text.replace(['`', '-', ' '], "").replace("&lt;", "<");
        // Only blanks, marks of code and escapes are added.
        let brackets = |text: &str| plain(text).replace(['<', '>'], "");
        prop_assert_eq!(brackets(&once), brackets(&text));
    }
}
