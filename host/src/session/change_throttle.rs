//! Changes of lists that sources announce. A source that announces them without pause costs a session no more than one
//! a second for each list.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::protocol::{Method, Notification};
use crate::sync::Mutex;

/// The pause after a change of a list before the next is passed on: no agent fetches a list more often.
const PAUSE: Duration = Duration::from_secs(1);

/// The changes that were passed on within the last second.
#[derive(Clone, Default)]
pub(super) struct ChangeThrottle(Arc<Mutex<Resting>>);

/// The lists that changed a moment ago, by source and method, each with the last change since.
type Resting = HashMap<(String, Method), Option<Notification>>;

impl ChangeThrottle {
    /// Passes a notification on. The first change of a list goes at once; of those that follow it within a second, the
    /// last goes at the end of that second. Any other notification goes at once. Dropping the future loses the
    /// notification that it is passing on.
    pub(super) async fn pass(
        &self,
        source: &str,
        notification: Notification,
        pass: impl Fn(Notification) -> BoxFuture<'static, ()> + Send + 'static,
    ) {
        if !is_change_of_list(&notification.method) {
            return pass(notification).await;
        }
        let list = (source.to_owned(), notification.method.clone());
        match self.0.lock().entry(list.clone()) {
            Entry::Occupied(mut resting) => return drop(resting.insert(Some(notification))),
            Entry::Vacant(place) => drop(place.insert(None)),
        }
        let first = pass(notification);
        let changes = self.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(PAUSE).await;
                let Some(next) = changes.next(&list) else { return };
                pass(next).await;
            }
        });
        first.await;
    }

    /// Returns the change that came in the pause. If none did, the pause is over.
    fn next(&self, list: &(String, Method)) -> Option<Notification> {
        let mut resting = self.0.lock();
        let next = resting.get_mut(list)?.take();
        if next.is_none() {
            resting.remove(list);
        }
        next
    }
}

/// Reports whether a method announces a change of one of the protocol's lists. Names that a source makes up do not
/// count: there could be any number of them.
fn is_change_of_list(method: &Method) -> bool {
    matches!(
        method,
        Method::NotificationsToolsListChanged
            | Method::NotificationsPromptsListChanged
            | Method::NotificationsResourcesListChanged
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;
    use crate::protocol::Json;

    /// Announces a change, and returns how many were passed on by then.
    async fn told(changes: &ChangeThrottle, heard: &Arc<Mutex<Vec<String>>>, method: &str, number: usize) -> usize {
        let change = Notification { method: method.into(), params: Some(Json::of(&json!(number))) };
        let all = Arc::clone(heard);
        let hear = move |change: Notification| -> BoxFuture<'static, ()> {
            all.lock().push(change.params.unwrap().as_str().to_owned());
            Box::pin(async {})
        };
        changes.pass("s", change, hear).await;
        heard.lock().len()
    }

    #[tokio::test(start_paused = true)]
    async fn of_the_changes_of_a_list_the_first_goes_at_once_and_the_last_within_a_second() {
        let (changes, heard) = (ChangeThrottle::default(), Arc::default());
        let (tools, prompts) = ("notifications/tools/list_changed", "notifications/prompts/list_changed");
        for number in 0..1000 {
            assert_eq!(told(&changes, &heard, tools, number).await, 1);
        }
        assert_eq!(told(&changes, &heard, prompts, 7).await, 2, "another list has a second of its own");
        tokio::time::sleep(PAUSE * 3).await;
        assert_eq!(*heard.lock(), ["0", "7", "999"]);
        assert!(changes.0.lock().is_empty(), "nothing is kept of a source that is quiet");
        assert_eq!(told(&changes, &heard, tools, 1000).await, 4, "at once again");
        for number in 0..3 {
            assert_eq!(told(&changes, &heard, "notifications/resources/updated", number).await, 5 + number);
        }
    }
}
