//! Two verifiers that share no code with the broker, the program of the book in Python and the component of
//! `examples/verify-a-ledger`, judge ledgers as it does, and say the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use portcullis::digest::Digest;
use portcullis::ledger::{ChainStart, Ledger};
use portcullis_test_support::{code_blocks, verifier};
use wasmtime::component::{Component, Linker, ResourceTable};
use wasmtime::{Engine, Store};
use wasmtime_wasi::p2::bindings::sync::Command as CommandWorld;
use wasmtime_wasi::p2::pipe::MemoryOutputPipe;
use wasmtime_wasi::{FsPerms, I32Exit, WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

use crate::test_dir::{TestDir, frames};

const PYTHON: &str = "/usr/bin/python3";

/// Checkpoints that were kept elsewhere, and the key that signed them.
type Kept<'a> = Option<(&'a str, &'a str)>;

/// The resources that the component can reach.
struct Sandbox {
    context: WasiCtx,
    table: ResourceTable,
}

impl WasiView for Sandbox {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.context, table: &mut self.table }
    }
}

/// The verifiers of one test.
struct Verifiers {
    dir: tempfile::TempDir,
    engine: Engine,
    component: Component,
}

impl Verifiers {
    fn new() -> Self {
        let program = code_blocks().into_iter().find(|block| block.is("verifier")).unwrap().text;
        let lines = program.lines().count();
        assert!(lines <= 150, "somebody who does not trust us has to read it: {lines}");
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("verify.py"), program).unwrap();
        let engine = Engine::default();
        let component = Component::from_file(&engine, verifier()).unwrap();
        Self { dir, engine, component }
    }

    /// Lets both judge a data folder: `Ok` if it is good, and `Err` with the fault otherwise. They must agree.
    fn judge(&self, data: &Path, kept: Kept<'_>) -> Result<String, String> {
        let judged = self.by_component(data, kept);
        match self.by_python(data, kept) {
            Some(by_python) => assert_eq!(judged, by_python, "the component and Python"),
            None => println!("there is no {PYTHON}: only the component judges"),
        }
        judged
    }

    fn by_python(&self, data: &Path, kept: Kept<'_>) -> Option<Result<String, String>> {
        let mut command = Command::new(PYTHON);
        command.arg(self.dir.path().join("verify.py")).arg(data);
        if let Some((checkpoints, key)) = kept {
            fs::write(self.dir.path().join("kept"), checkpoints).unwrap();
            command.arg(self.dir.path().join("kept")).arg(key);
        }
        let ended = command.output().ok()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        Some(if ended.status.success() { Ok(text(&ended.stdout)) } else { Err(text(&ended.stderr)) })
    }

    fn by_component(&self, data: &Path, kept: Kept<'_>) -> Result<String, String> {
        let (out, error) = (MemoryOutputPipe::new(4096), MemoryOutputPipe::new(4096));
        let mut context = WasiCtxBuilder::new();
        context.stdout(out.clone()).stderr(error.clone()).args(&["verify-a-ledger", "/ledger"]);
        context.preopened_dir(data, "/ledger", FsPerms::ReadOnly).unwrap();
        if let Some((checkpoints, key)) = kept {
            let folder = self.dir.path();
            fs::write(folder.join("kept"), checkpoints).unwrap();
            context.preopened_dir(folder, "/kept", FsPerms::ReadOnly).unwrap();
            context.args(&["/kept/kept", key]);
        }
        let mut linker = Linker::new(&self.engine);
        wasmtime_wasi::p2::add_to_linker_sync(&mut linker).unwrap();
        let sandbox = Sandbox { context: context.build(), table: ResourceTable::new() };
        let mut store = Store::new(&self.engine, sandbox);
        let world = CommandWorld::instantiate(&mut store, &self.component, &linker).unwrap();
        let is_good = match world.wasi_cli_run().call_run(&mut store) {
            Ok(ended) => ended.is_ok(),
            Err(trap) => trap.downcast_ref::<I32Exit>().unwrap_or_else(|| panic!("{trap:?}")).0 == 0,
        };
        let text = |pipe: &MemoryOutputPipe| String::from_utf8_lossy(&pipe.contents()).trim().to_owned();
        if is_good { Ok(text(&out)) } else { Err(text(&error)) }
    }
}

fn is_good(judged: &Result<String, String>) -> bool {
    judged.as_ref().is_ok_and(|told| told.starts_with("good: "))
}

/// Asserts that something is wrong with a ledger, and says so.
fn assert_fault(judged: &Result<String, String>, reason: &str) {
    assert!(judged.as_ref().is_err_and(|told| told.contains(reason)), "{reason:?}: {judged:?}");
}

#[test]
fn other_verifiers_check_a_ledger_and_find_a_change() {
    let dir = TestDir::new("[sources.calc]\ncomponent = \"builtin:calculator\"\n");
    assert_eq!(dir.run(&["call", "calc__add", "{\"a\": 1, \"b\": 2}"]).code, Some(0));
    let (verifiers, data) = (Verifiers::new(), dir.data(""));
    let good = verifiers.judge(&data, None);
    assert!(is_good(&good), "{good:?}");
    assert_fault(&verifiers.judge(dir.path("").as_path(), None), "this is no data folder");
    let (segment, whole) = (dir.segment(), fs::read(dir.segment()).unwrap());
    let first = usize::try_from(frames(&segment)[1]).unwrap();
    // A record that is changed, checksum and all, and a damaged end.
    let mut changed = whole.clone();
    changed[first + 32] ^= 1;
    let content = u32::from_le_bytes(changed[first + 12..first + 16].try_into().unwrap()) as usize;
    let sum = crc32fast::hash(&changed[first + 8..first + 32 + content]);
    changed[first + 4..first + 8].copy_from_slice(&sum.to_le_bytes());
    let last = usize::try_from(*frames(&segment).last().unwrap()).unwrap();
    for (changed, reason) in [(&changed[..], "record 1 is not as it was written"), (&whole[..last], "is missing")] {
        fs::write(&segment, changed).unwrap();
        assert_fault(&verifiers.judge(&data, None), reason);
    }
    fs::write(&segment, whole).unwrap();

    // Checkpoints: ours, one that was changed, and one with another root.
    let checkpoint = dir.run(&["audit", "checkpoint"]).out;
    let key = dir.run(&["audit", "key"]).out;
    let compare = |checkpoint: &str| verifiers.judge(&data, Some((checkpoint, key.trim())));
    let good = compare(&checkpoint);
    assert!(is_good(&good), "{good:?}");
    let size = checkpoint.lines().nth(1).unwrap();
    assert_fault(&compare(&checkpoint.replacen(&format!("\n{size}\n"), "\n1\n", 1)), "is not signed with this key");
    assert_fault(&compare("nothing\n"), "this is no file of checkpoints");
    let segment = dir.segment();
    let ended = dir.data("chains").join(format!("{}.ended", chain_of(&segment)));
    fs::remove_file(ended).unwrap();
    let cut = fs::read(&segment).unwrap();
    fs::write(&segment, &cut[..last]).unwrap();
    assert_fault(&compare(&checkpoint), "are not those that the checkpoint covers");
}

/// Writes a ledger of one chain with two records, whose hashes fit. The second has this number in its run.
fn forge(data: &Path, run_seq: u64) {
    let chain = "00000000000000000000000000";
    let run = "00000000000000000000000001";
    let texts = [
        format!(r#"{{"at":1,"body":{{}},"chain":"{chain}","kind":"broker.started","seq":1,"v":1}}"#),
        format!(
            r#"{{"at":2,"body":{{}},"chain":"{chain}","kind":"run.started","run":"{run}","run_seq":{run_seq},"seq":2,"v":1}}"#
        ),
    ];
    let (mut before, mut hashes) = ([0; 32], Vec::new());
    for text in &texts {
        before = Digest::of(&[b"portcullis ledger v1\0", &before[..], text.as_bytes()].concat()).0;
        hashes.extend(before);
    }
    let frame = |kind: u8, count: u16, content: &[u8], text: usize| {
        let lengths = [content.len(), text, 0].map(|length| u32::try_from(length).unwrap().to_le_bytes()).concat();
        let covered = [&[kind, 0], &count.to_le_bytes()[..], &lengths, &1_u64.to_le_bytes(), content].concat();
        [b"PLF2", &crc32fast::hash(&covered).to_le_bytes()[..], &covered].concat()
    };
    let zeros = "0".repeat(64);
    let start = format!(r#"{{"chain":"{chain}","format":2,"segment":1,"seq":1,"hash":"{zeros}"}}"#);
    let text = texts.map(|text| text + "\n").concat();
    let records = frame(3, 2, &[&hashes, text.as_bytes()].concat(), text.len());
    fs::create_dir_all(data.join("records")).unwrap();
    let segment = [frame(1, 0, start.as_bytes(), start.len()), records].concat();
    fs::write(data.join("records").join(format!("{chain}-000001.records")), segment).unwrap();
}

#[test]
fn all_verifiers_name_a_record_that_is_missing_in_its_run() {
    let (dir, verifiers) = (TestDir::new(""), Verifiers::new());
    for (run_seq, reason) in [(1, None), (2, Some("record 2 of its run, and record 1 is missing"))] {
        let data = dir.path(&format!("forged-{run_seq}"));
        forge(&data, run_seq);
        let ours = dir.run(&["audit", "verify", "--data-dir", data.to_str().unwrap()]);
        let theirs = verifiers.judge(&data, None);
        match reason {
            // It has no end, and no broker has sealed it.
            None => assert!(ours.code == Some(2) && is_good(&theirs), "{}{}{theirs:?}", ours.out, ours.err),
            Some(reason) => {
                assert!(ours.code == Some(1) && ours.out.contains(reason), "{}{}", ours.out, ours.err);
                assert_fault(&theirs, reason);
            }
        }
    }
}

#[test]
fn other_verifiers_check_a_ledger_from_which_old_records_were_removed() {
    let dir = TestDir::new("[sources.calc]\ncomponent = \"builtin:calculator\"\n");
    for _ in 0..2 {
        assert_eq!(dir.run(&["call", "calc__add", "{\"a\": 1, \"b\": 2}"]).code, Some(0));
    }
    let before = dir.run(&["audit", "checkpoint"]).out;
    let removal = tokio::runtime::Runtime::new().unwrap().block_on(async {
        let started = ChainStart { version: "1".to_owned(), config: Digest::of(b""), key: None };
        let ledger = Ledger::open(&dir.data(""), started).await.unwrap();
        let removal = ledger.remove_before(u64::MAX).await.unwrap();
        ledger.close().await;
        removal
    });
    assert_eq!(removal.chains, 2);
    let (after, key) = (dir.run(&["audit", "checkpoint"]).out, dir.run(&["audit", "key"]).out);
    let kept = before + "\n" + &after;
    fs::write(dir.path("kept"), &kept).unwrap();
    let ours = dir.run(&["audit", "verify", "--checkpoint", "kept"]);
    assert!(ours.code == Some(0) && ours.out.contains(&format!("{} older records", removal.records)), "{}", ours.out);
    let verifiers = Verifiers::new();
    let good = verifiers.judge(&dir.data(""), Some((&kept, key.trim())));
    assert!(is_good(&good), "{good:?}");

    // Their remains cannot be changed.
    let is_left = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "removed");
    let left = fs::read_dir(dir.data("records")).unwrap().map(|entry| entry.unwrap().path()).find(is_left).unwrap();
    let text = fs::read_to_string(&left).unwrap();
    fs::write(&left, text.replacen("\"until\":1", "\"until\":2", 1)).unwrap();
    assert_eq!(dir.run(&["audit", "verify"]).code, Some(1));
    assert_fault(&verifiers.judge(&dir.data(""), None), "no record says that they were removed");
}

/// Returns the chain to which a segment belongs.
fn chain_of(segment: &Path) -> String {
    segment.file_name().unwrap().to_str().unwrap().split('-').next().unwrap().to_owned()
}
