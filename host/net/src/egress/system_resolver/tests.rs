#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
use std::pin::Pin;
use std::sync::Condvar;
use std::sync::mpsc::{Receiver, channel};
use std::task::{Context, Poll, Waker};

use super::*;

/// The system's resolver of a test: names that begin with `silent` have no answer until the test gives them one.
struct NameService {
    resolver: Arc<SystemResolver>,
    answering: Arc<(std::sync::Mutex<bool>, Condvar)>,
    /// Each name that is looked up, as its lookup starts.
    started: Receiver<String>,
}

impl NameService {
    fn new() -> Self {
        let answering = Arc::new((std::sync::Mutex::new(false), Condvar::new()));
        let (sender, started) = channel();
        let waited_for = Arc::clone(&answering);
        let lookup = move |name: &str| {
            sender.send(name.to_owned()).unwrap();
            if name.starts_with("silent") {
                let (answering, changed) = &*waited_for;
                drop(changed.wait_while(answering.lock().unwrap(), |answering| !*answering).unwrap());
            }
            match name {
                "unknown.example" => Err(io::Error::new(io::ErrorKind::NotFound, "no such name")),
                "broken.example" => panic!("the function that looks up names is broken"),
                _ => Ok(vec!["192.0.2.7:0".parse().unwrap()]),
            }
        };
        Self { resolver: Arc::new(SystemResolver::by(Arc::new(lookup))), answering, started }
    }

    /// Lets the silent names have their answers.
    fn answer(&self) {
        *self.answering.0.lock().unwrap() = true;
        self.answering.1.notify_all();
    }

    /// Begins a lookup that continues whether or not the test waits for it.
    fn ask(&self, name: &str, port: u16) -> tokio::task::JoinHandle<io::Result<Vec<SocketAddr>>> {
        let (resolver, name) = (Arc::clone(&self.resolver), name.to_owned());
        tokio::spawn(async move { resolver.lookup(&name, port).await })
    }

    /// Waits until a lookup starts. Returns its name.
    async fn next_started(&mut self) -> String {
        loop {
            match self.started.try_recv() {
                Ok(name) => return name,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    }
}

/// A test that fails must not leave threads that wait.
impl Drop for NameService {
    fn drop(&mut self) {
        self.answer();
    }
}

fn addresses(port: u16) -> Vec<SocketAddr> {
    vec![SocketAddr::from(([192, 0, 2, 7], port))]
}

/// Polls a future once, which must not be done.
fn begin(future: Pin<&mut (impl Future + ?Sized)>) {
    assert!(matches!(future.poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
}

#[tokio::test]
async fn a_name_is_looked_up_once_at_a_time_whoever_asks_for_it() {
    let mut names = NameService::new();
    let resolver = Arc::clone(&names.resolver);
    let mut all: Vec<_> = (1..=20).map(|port| resolver.lookup("silent.example", port)).collect();
    all.iter_mut().for_each(|asked| begin(asked.as_mut()));
    assert_eq!(names.next_started().await, "silent.example");
    names.answer();
    for (asked, port) in all.into_iter().zip(1..) {
        assert_eq!(asked.await.unwrap(), addresses(port), "each has its own port");
    }
    assert!(names.started.try_recv().is_err(), "it was looked up once");
    assert_eq!(resolver.lookup("silent.example", 1).await.unwrap(), addresses(1));
    assert_eq!(names.next_started().await, "silent.example", "an answer is not kept");
}

#[tokio::test]
async fn a_source_whose_names_are_not_answered_holds_up_its_own_lookups_alone() {
    let (mut hostile, mut honest) = (NameService::new(), NameService::new());
    let silent: Vec<_> = (0..MAX_LOOKUPS).map(|at| hostile.ask(&format!("silent{at}.example"), 443)).collect();
    for _ in 0..MAX_LOOKUPS {
        hostile.next_started().await;
    }
    let waiting = hostile.ask("known.example", 443);
    assert_eq!(honest.ask("known.example", 443).await.unwrap().unwrap(), addresses(443));
    assert_eq!(honest.next_started().await, "known.example");
    assert!(hostile.started.try_recv().is_err() && !waiting.is_finished(), "there is no place for another name");
    hostile.answer();
    assert_eq!(waiting.await.unwrap().unwrap(), addresses(443));
    for answered in silent {
        assert_eq!(answered.await.unwrap().unwrap(), addresses(443));
    }
}

#[tokio::test]
async fn a_caller_that_gives_up_leaves_the_lookup_to_the_others() {
    let mut names = NameService::new();
    let resolver = Arc::clone(&names.resolver);
    let mut first = resolver.lookup("silent.example", 1);
    begin(first.as_mut());
    assert_eq!(names.next_started().await, "silent.example");
    let mut second = resolver.lookup("silent.example", 2);
    begin(second.as_mut());
    drop(first);
    drop(second);
    // Nobody waits at this moment, and the lookup is still the one that a new caller joins.
    let mut third = resolver.lookup("silent.example", 3);
    begin(third.as_mut());
    names.answer();
    assert_eq!(third.await.unwrap(), addresses(3));
    assert!(names.started.try_recv().is_err(), "it was looked up once");
}

#[tokio::test]
async fn a_name_that_nobody_waits_for_any_more_is_not_looked_up() {
    let mut names = NameService::new();
    let resolver = Arc::clone(&names.resolver);
    let silent: Vec<_> = (0..MAX_LOOKUPS).map(|at| names.ask(&format!("silent{at}.example"), 443)).collect();
    for _ in 0..MAX_LOOKUPS {
        names.next_started().await;
    }
    let mut waiting = ["dropped.example", "known.example"].map(|name| resolver.lookup(name, 443));
    waiting.iter_mut().for_each(|asked| begin(asked.as_mut()));
    let [dropped, known] = waiting;
    drop(dropped);
    names.answer();
    assert_eq!(known.await.unwrap(), addresses(443));
    assert_eq!(names.next_started().await, "known.example");
    for answered in silent {
        answered.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_lookup_that_fails_says_why_and_frees_its_place() {
    let names = NameService::new();
    for _ in 0..=MAX_LOOKUPS {
        let unknown = names.resolver.lookup("unknown.example", 443).await.unwrap_err();
        assert_eq!((unknown.kind(), unknown.to_string().as_str()), (io::ErrorKind::NotFound, "no such name"));
        let broken = names.resolver.lookup("broken.example", 443).await.unwrap_err();
        assert_eq!(broken.to_string(), "the lookup could not be made");
    }
    assert_eq!(names.resolver.lookup("known.example", 443).await.unwrap(), addresses(443));
}

#[test]
fn lookups_take_no_thread_of_the_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
    let (release, held) = channel::<()>();
    let (holds, is_held) = channel();
    let occupied = runtime.spawn_blocking(move || {
        holds.send(()).unwrap();
        held.recv()
    });
    is_held.recv().unwrap();
    // The machine's own resolver, which knows this name without a network.
    let found = runtime.block_on(SystemResolver::new().lookup("localhost", 443)).unwrap();
    assert!(!found.is_empty() && found.iter().all(|at| at.ip().is_loopback() && at.port() == 443), "{found:?}");
    release.send(()).unwrap();
    runtime.block_on(occupied).unwrap().unwrap();
}
