//! `portcullis policy prove`: a change of policies that lets a call go further is found, and one that does not is not
//! accused.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::test_dir::{TestDir, finish};

/// No solver is there.
const NONE: &str = "/nonexistent/cvc5";

const CALCULATOR: &str = "[sources.calc]\ncomponent = \"builtin:calculator\"\n[profiles.admin]\n";

/// Returns the solver, which CI installs. Without it, only searches are tested.
fn solver() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = std::env::var_os("CVC5").map(PathBuf::from);
    let found =
        named.or_else(|| std::env::split_paths(&path).map(|folder| folder.join("cvc5")).find(|file| file.is_file()));
    assert!(found.is_some() || std::env::var_os("CI").is_none(), "cvc5 is not installed");
    found
}

/// Runs `portcullis policy prove` with this solver, and returns its exit code and its answer.
fn prove(dir: &TestDir, solver: &Path, arguments: &[&str]) -> (Option<i32>, Value) {
    let mut command = dir.command(&[&["policy", "prove", "--json"], arguments].concat());
    command.env("CVC5", solver);
    let ran = finish(command);
    let found = serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}{}", ran.out, ran.err));
    (ran.code, found)
}

/// Returns policies in Cedar that permit the calculator, with these further ones.
fn cedar(further: &str) -> String {
    format!("permit (principal, action in Action::\"call_tool\", resource in Source::\"calc\");\n{further}\n")
}

/// A change, and the verdicts of a call that goes further; `None` if there is none.
type Change<'a> = (&'a str, &'a str, Option<(&'a str, &'a str)>);

#[test]
fn a_change_of_cedar_policies_is_wider_exactly_if_a_call_goes_further() {
    let no_zero = "@id(\"no-zero\") forbid (principal, action == Action::\"calc__divide\", resource) when { context.input.b == 0 };";
    let large_zero = "@id(\"no-zero\") forbid (principal, action == Action::\"calc__divide\", resource) \
                      when { context.input.b == 0 && context.input.a < 1000 };";
    let not_one = "forbid (principal, action == Action::\"calc__divide\", resource) when { context.input.b < 1 && context.input.b > -1 };";
    let but_admin = "forbid (principal, action == Action::\"calc__divide\", resource) \
                     when { context.input.b == 0 } unless { principal in Profile::\"admin\" };";
    let asks = "@requireApproval(\"a zero\") permit (principal, action == Action::\"calc__divide\", resource) when { context.input.b == 0 };";
    let asks_if_there = &asks.replace("{ context", "{ context.input has b && context");
    let changes: [Change<'_>; 7] = [
        (no_zero, large_zero, Some(("deny", "pass"))),
        (large_zero, no_zero, None),
        (no_zero, not_one, None),
        (no_zero, but_admin, Some(("deny", "pass"))),
        (no_zero, asks, Some(("deny", "ask"))),
        (asks_if_there, "", Some(("ask", "pass"))),
        (asks, no_zero, None),
    ];
    let dir = TestDir::new(CALCULATOR);
    let solvers = [Some(PathBuf::from(NONE)), solver()];
    for (old, new, expected) in changes {
        fs::write(dir.path("old.cedar"), cedar(old)).unwrap();
        fs::write(dir.path("new.cedar"), cedar(new)).unwrap();
        for (solver, is_proof) in solvers.iter().zip([false, true]) {
            let Some(solver) = solver else { continue };
            let (code, found) = prove(&dir, solver, &["--calls", "60000", "old.cedar", "new.cedar"]);
            let place = format!("{old}\n{new}\n{found:#}");
            assert_eq!(code, Some(i32::from(expected.is_some())), "{place}");
            assert_eq!((&found["wider"], &found["proved"]), (&json!(expected.is_some()), &json!(is_proof)), "{place}");
            assert_eq!(found["method"], if is_proof { "proof" } else { "exhaustive-search" }, "{place}");
            let call = &found["call"];
            let verdicts =
                expected.map(|_| (call["old"]["verdict"].as_str().unwrap(), call["new"]["verdict"].as_str().unwrap()));
            assert_eq!(verdicts, expected, "{place}");
            if expected.is_some() {
                assert_eq!((&call["item"], &call["arguments"]["b"]), (&json!("calc__divide"), &json!(0)), "{place}");
                assert_eq!(call["profile"], if new == but_admin { "admin" } else { "default" }, "{place}");
            }
        }
    }
}

#[test]
fn only_what_holds_for_every_call_is_called_proved() {
    let Some(solver) = solver() else { return };
    let zero = "forbid (principal, action == Action::\"calc__divide\", resource) when { context.input.b == 0 };";
    let dir = TestDir::new(CALCULATOR);
    let prove = |old: &str, new: &str, expected: &str| {
        fs::write(dir.path("old.cedar"), old).unwrap();
        fs::write(dir.path("new.cedar"), new).unwrap();
        let (code, found) = prove(&dir, &solver, &["--calls", "2000", "old.cedar", "new.cedar"]);
        assert!(found.to_string().contains(expected), "{expected}: {found:#}");
        (code, found["wider"] == true, found["proved"] == true)
    };
    // Every tool is of the only source, which the solver would not know on its own.
    let any = format!("permit (principal, action in Action::\"call_tool\", resource);\n{zero}");
    assert_eq!(prove(&cedar(zero), &any, "proof"), (Some(0), false, true));
    // Cedar skips a policy that fails, and here it denies.
    let overflows =
        cedar("forbid (principal, action == Action::\"calc__add\", resource) when { context.input.a + 1 < 0 };");
    assert!(!prove(&overflows, &overflows.replace("+ 1", "+ 1 + 1"), "of OLD fails for some calls").2);
    let ill_typed =
        cedar("forbid (principal, action == Action::\"calc__divide\", resource) when { context.input.z == 0 };");
    assert!(!prove(&ill_typed, &cedar(zero), "do not agree with the types").2);
    // Arguments outside the input schemas are tried, although the proof is not about them.
    let whole = "permit (principal, action == Action::\"calc__add\", resource) when { context.input.a < 5 || context.input.a >= 5 };";
    let every = "permit (principal, action == Action::\"calc__add\", resource);";
    assert_eq!(prove(whole, every, "agree with the input schemas"), (Some(1), true, false));
}

#[test]
fn a_lost_forbid_with_a_pattern_that_begins_with_a_wildcard_is_found() {
    let dir = TestDir::new("[sources.files]\ncomponent = \"builtin:filesystem\"\ncell = { read = [\"docs\"] }\n");
    fs::create_dir(dir.path("docs")).unwrap();
    let inside =
        "permit (principal, action == Action::\"files__read\", resource) when { context.input.path like \"/srv/*\" };";
    let forbid =
        "forbid (principal, action == Action::\"files__read\", resource) when { context.input.path like \"*..*\" };";
    fs::write(dir.path("old.cedar"), format!("{inside}\n{forbid}")).unwrap();
    fs::write(dir.path("new.cedar"), inside).unwrap();
    for solver in [Some(PathBuf::from(NONE)), solver()].into_iter().flatten() {
        let (code, found) = prove(&dir, &solver, &["old.cedar", "new.cedar"]);
        assert_eq!((code, &found["wider"]), (Some(1), &json!(true)), "{}: {found:#}", solver.display());
        let path = found["call"]["arguments"]["path"].as_str().unwrap();
        assert!(path.starts_with("/srv/") && path.contains(".."), "{path}");
        let (code, found) = prove(&dir, &solver, &["--require-proof", "--calls", "200", "new.cedar", "old.cedar"]);
        let expected = if solver == Path::new(NONE) { (Some(2), &json!(false)) } else { (Some(0), &json!(true)) };
        assert_eq!((code, &found["proved"]), expected, "{}: {found:#}", solver.display());
    }
}

#[test]
fn policies_of_every_plugin_are_compared_by_search() {
    let dir = TestDir::new(CALCULATOR);
    let write = |name: &str, settings: &str, plugin: &str| {
        let text = format!("[[policies]]\nplugin = \"{plugin}\"\nsettings = {{ {settings} }}\n");
        fs::write(dir.path(name), text).unwrap();
    };
    for (old, new, expected) in [
        ("deny = [{ when = \"arguments.a > 100\" }]", "deny = [{ when = \"arguments.a > 101\" }]", Some("deny pass")),
        ("deny = [{ when = \"arguments.a > 101\" }]", "deny = [{ when = \"arguments.a > 100\" }]", None),
        ("deny = [{ tool = \"calc__*\", when = \"arguments.a > 7\" }]", "ask = [\"calc__*\"]", Some("deny ask")),
        ("ask = [\"calc__add\"]", "ask = [{ tool = \"calc__add\", when = \"profile != 'admin'\" }]", Some("ask pass")),
        ("ask = [\"calc__add\"]", "deny = [\"calc__add\"]", None),
        (
            "allow = [{ tool = \"calc__*\", arguments = { a = 1 } }]",
            "allow = [{ tool = \"calc__*\", arguments = { a = 2 } }]",
            Some("deny pass"),
        ),
        (
            "deny = [{ source = \"calc\", arguments = { b = 1 } }]",
            "deny = [{ source = \"calc\", when = \"arguments.b == 1\" }]",
            None,
        ),
        // A rule takes null for 0, as some programs do, and a condition does not.
        (
            "deny = [{ source = \"calc\", arguments = { b = 0 } }]",
            "deny = [{ source = \"calc\", when = \"arguments.b == 0\" }]",
            Some("deny pass"),
        ),
        // Arguments and members that only policies name.
        ("deny = [{ tool = \"calc__add\", when = \"has(arguments.force)\" }]", "ask = [\"none\"]", Some("deny pass")),
        ("deny = [{ tool = \"calc__add\", when = \"'force' in arguments\" }]", "ask = [\"none\"]", Some("deny pass")),
        (
            "deny = [{ tool = \"calc__add\", when = \"has(arguments.opt) && has(arguments.opt.force)\" }]",
            "deny = [{ tool = \"calc__add\", when = \"has(arguments.opt) && has(arguments.opt.force) && arguments.opt.force == 7\" }]",
            Some("deny pass"),
        ),
        // A missing argument is another one than any value.
        (
            "deny = [{ source = \"calc\", when = \"arguments.b == 0\" }]",
            "deny = [{ source = \"calc\", arguments = { b = 0 } }]",
            Some("deny pass"),
        ),
    ] {
        write("old.toml", old, "builtin:rules");
        write("new.toml", new, "builtin:rules");
        let (code, found) = prove(&dir, Path::new(NONE), &["--calls", "40000", "old.toml", "new.toml"]);
        let place = format!("{old}\n{new}\n{found:#}");
        let word = |side: &str| found["call"][side]["verdict"].as_str().unwrap().to_owned();
        let verdicts = expected.map(|_| format!("{} {}", word("old"), word("new")));
        assert_eq!((code, verdicts.as_deref()), (Some(i32::from(expected.is_some())), expected), "{place}");
        // One member within another makes the sample larger than what is judged of it.
        let method = if old.contains("opt") { "random-search" } else { "exhaustive-search" };
        assert_eq!((&found["method"], &found["proved"]), (&json!(method), &json!(false)), "{place}");
        assert!(found["judged"].as_u64() > Some(0), "{place}");
    }
    let (code, found) = prove(&dir, Path::new(NONE), &["old.toml", "old.toml"]);
    assert_eq!((code, &found["method"], &found["wider"]), (Some(0), &json!("same"), &json!(false)), "{found:#}");
    // A sample that is too large is judged in part, always the same one.
    let random = || prove(&dir, Path::new(NONE), &["--calls", "50", "new.toml", "builtin:flow"]).1;
    let found = random();
    assert_eq!((&found["method"], &found), (&json!("random-search"), &random()), "{found:#}");
}

#[test]
fn the_call_that_goes_further_can_be_pasted() {
    let with = |settings: &str| {
        format!(
            "{CALCULATOR}approve = \"never\"\n[[policies]]\nplugin = \"builtin:rules\"\nsettings = {{ {settings} }}\n"
        )
    };
    let (old, new) = (with("deny = [{ when = \"arguments.b == 0\" }]"), with("deny = [\"calc__add\"]"));
    let dir = TestDir::new(&old);
    fs::write(dir.path("new.toml"), &new).unwrap();
    let mut command = dir.command(&["policy", "prove", "portcullis.toml", "new.toml"]);
    command.env("CVC5", NONE);
    let ran = finish(command);
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    assert!(
        ran.out.starts_with("wider: pass instead of deny\n") && ran.out.contains("found by a search"),
        "{}",
        ran.out
    );
    let line = ran.out.lines().nth(1).unwrap().trim().strip_prefix("portcullis call ").unwrap();
    let (tool, arguments) = line.split_once(' ').unwrap();
    let call = ["call", tool, arguments.trim_matches('\'')];
    assert!(dir.run(&call).err.contains("denied by the rule"), "{line}");
    dir.configure(&new);
    assert!(!dir.run(&call).err.contains("denied by the rule"), "{line}");
}

#[test]
fn what_cannot_be_compared_is_refused_with_the_way_out() {
    let dir = TestDir::new(CALCULATOR);
    fs::write(dir.path("bad.cedar"), "allow everything;").unwrap();
    fs::write(dir.path("none.toml"), "").unwrap();
    fs::write(
        dir.path("list.toml"),
        "[[policies]]\nplugin = \"builtin:rules\"\non = [\"list\"]\nsettings = { deny = [\"*\"] }\n",
    )
    .unwrap();
    for (old, new, expected) in [
        ("missing.cedar", "builtin:rules", "missing.cedar cannot be read"),
        ("builtin:rules", "bad.cedar", "settings.policies, line 1"),
        ("builtin:rules", "bad.cedar", "bad.cedar: builtin:cedar refuses its settings"),
        ("none.toml", "builtin:rules", "no policy of none.toml would judge"),
        ("builtin:rules", "none.toml", "no policy of none.toml would judge"),
        ("list.toml", "builtin:rules", "no policy of list.toml judges calls"),
        ("a.rego", "builtin:rules", "a.rego is not a policy"),
    ] {
        let ran = dir.run(&["policy", "prove", old, new]);
        // A build that refuses what is wider does not take it for that.
        assert!(ran.code == Some(2) && ran.err.contains(expected), "{old} {new}: {}{}", ran.out, ran.err);
        assert!(!ran.err.contains("--candidate"), "the user wrote no such option: {}", ran.err);
        let ran = dir.run(&["policy", "prove", "--json", old, new]);
        let error: Value = serde_json::from_str(&ran.err).unwrap();
        assert!(ran.code == Some(2) && error["error"].as_str().unwrap().contains(expected), "{error}");
    }
    dir.configure("[profiles.default]\n");
    let ran = dir.run(&["policy", "prove", "list.toml", "builtin:rules"]);
    assert_eq!(ran.code, Some(2), "{}{}", ran.out, ran.err);
}

#[test]
fn nothing_is_proved_about_what_the_solver_does_not_see() {
    let Some(solver) = solver() else { return };
    let dir = TestDir::new(CALCULATOR);
    // A caller may send an argument that the schema of `add` does not name.
    let force = "@id(\"no-force\") forbid (principal, action == Action::\"calc__add\", resource) when { context.input has force };";
    fs::write(dir.path("old.cedar"), cedar(force)).unwrap();
    fs::write(dir.path("new.cedar"), cedar("")).unwrap();
    let (code, found) = prove(&dir, &solver, &["--calls", "60000", "old.cedar", "new.cedar"]);
    assert_eq!((code, &found["proved"], &found["wider"]), (Some(1), &json!(false), &json!(true)), "{found:#}");
    assert!(found["notProved"].as_str().unwrap().contains("`force`"), "{found:#}");
    assert!(found["call"]["arguments"].get("force").is_some(), "the search sends it: {found:#}");

    // An item that is hidden from lists is denied as a call, too.
    let listed = format!(
        "{CALCULATOR}[[policies]]\nplugin = \"builtin:cedar\"\non = [\"list\", \"call\"]\nsettings = {{ policies = \"permit (principal, action, resource);\" }}\n"
    );
    let narrower = cedar("forbid (principal, action == Action::\"calc__add\", resource);");
    let hiding = TestDir::new(&listed);
    fs::write(hiding.path("old.cedar"), cedar("")).unwrap();
    fs::write(hiding.path("new.cedar"), narrower).unwrap();
    let (code, found) = prove(&hiding, &solver, &["old.cedar", "new.cedar"]);
    assert_eq!((code, &found["proved"]), (Some(0), &json!(true)), "{found:#}");
    let (code, _) = prove(&hiding, &solver, &["new.cedar", "old.cedar"]);
    assert_eq!(code, Some(1));

    // Policies that are asked about results are not part of it.
    let with = |on: &str| {
        format!(
            "{CALCULATOR}[[policies]]\nplugin = \"builtin:cedar\"\non = {on}\nsettings = {{ policies = \"permit (principal, action, resource);\" }}\n"
        )
    };
    fs::write(dir.path("old.toml"), with(r#"["call", "result"]"#)).unwrap();
    fs::write(dir.path("new.toml"), with(r#"["call"]"#)).unwrap();
    let (_, found) = prove(&dir, &solver, &["--calls", "20", "old.toml", "new.toml"]);
    assert_eq!(found["proved"], false, "{found:#}");
    assert!(found["notProved"].as_str().unwrap().contains("results"), "{found:#}");

    // Nothing is known of the calls of a source that is missing.
    let dir = TestDir::new(&format!("{CALCULATOR}[sources.gone]\ncommand = [\"/bin/false\"]\n"));
    fs::write(
        dir.path("old.cedar"),
        cedar("forbid (principal, action, resource) when { resource in Source::\"gone\" };"),
    )
    .unwrap();
    fs::write(dir.path("new.cedar"), cedar("")).unwrap();
    let (code, found) = prove(&dir, &solver, &["--calls", "20", "old.cedar", "new.cedar"]);
    assert_eq!((code, &found["proved"]), (Some(2), &json!(false)), "{found:#}");
}
