//! What a terminal shows of an untrusted configuration before the question.

use super::*;

#[test]
fn no_text_of_an_untrusted_file_pushes_its_effects_away_from_the_question() {
    let rows: String = ["notes is not trusted yet. It would do this:", "+ source notes: starts notes-server"]
        .iter()
        .cycle()
        .take(3000)
        .map(|row| format!("{row:<80}"))
        .collect();
    let many: String = (0..200).map(|n| format!("[sources.a{n}]\ncomponent = \"builtin:calculator\"\n")).collect();
    let dir = untrusted(&format!(
        "{many}[sources.evil]\ncommand = [\"@source@\", \"plain\", \"{rows}\"]\nscan = \"off\"\n\
         cell = {{ write = [\"open\"], network = [\"evil.example:443\"] }}\n[profiles.default]\napprove = \"never\"\n"
    ));
    let (code, said) = ask(&dir, &dir.path("."), "no");
    assert_eq!(code, Some(1), "{said}");
    let shown: Vec<&str> = said.lines().map(str::trim_end).collect();
    let question = shown.iter().position(|row| row.contains("Do you trust it?")).unwrap();
    assert!(question < 70, "{question} rows: {said}");
    assert!(shown[..question].iter().all(|row| row.chars().count() < 240), "{said}");
    let near = shown[question.saturating_sub(12)..question].join("\n");
    for effect in [
        "source evil: reads and writes ",
        "source evil: reaches evil.example:443",
        "profile default: never asks before a risky call",
        "source evil: is shown as it is",
        "lines before these are not shown",
    ] {
        assert!(near.contains(effect), "{effect} is not in {near}");
    }
    // Whoever wants to read all of it can.
    let all = dir.run(&["trust"]);
    assert!(all.err.contains("source a199: runs") && all.err.contains("source evil: starts"), "{}", all.err.len());
    assert!(!all.err.contains("    ") && all.err.contains(" blanks]"), "a run of blanks is its number");
}
