//! The shutdown of a front while its agent does something else than to wait.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_front_stops_although_its_agent_writes_and_does_not_read() {
    let (fake, _events) = FakeBroker::new();
    let (near, far) = tokio::io::duplex(1024);
    let (input, output) = tokio::io::split(near);
    let (stop, stopped) = oneshot::channel();
    let stopped = async { stopped.await.unwrap() };
    let served = tokio::spawn(serve(Arc::new(fake), profile(), input, output, MAX_LINE, stopped));
    let (_unread, mut agent) = tokio::io::split(far);
    // Until the front takes no more, because its answers are not read.
    while timeout(Duration::from_secs(1), agent.write_all(b"{nonsense\n")).await.is_ok() {}
    stop.send(()).unwrap();
    timeout(4 * DRAIN, served).await.expect("the front stops").unwrap().unwrap();
}
