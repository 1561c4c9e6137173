//! The pool with models that are numbers, and loaders that count.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

/// A model that takes ten bytes for each unit of its size.
struct Fake {
    size: u64,
    loads: AtomicUsize,
    fails: AtomicBool,
    panics: bool,
    takes: Duration,
}

impl Fake {
    fn new(size: u64) -> Arc<Self> {
        Self::with(size, |_| ())
    }

    fn with(size: u64, change: impl FnOnce(&mut Self)) -> Arc<Self> {
        let takes = Duration::from_millis(20);
        let mut fake =
            Self { size, loads: AtomicUsize::new(0), fails: AtomicBool::new(false), panics: false, takes };
        change(&mut fake);
        Arc::new(fake)
    }

    fn loads(&self) -> usize {
        self.loads.load(Ordering::SeqCst)
    }
}

impl Loader<u64> for Fake {
    fn estimate(&self) -> Result<u64, String> {
        Ok(self.size * 10)
    }

    fn load(&self) -> Result<u64, String> {
        self.loads.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(self.takes);
        assert!(!self.panics, "as told");
        if self.fails.load(Ordering::SeqCst) { Err("it is broken".to_owned()) } else { Ok(self.size) }
    }

    fn bytes(&self, model: &u64) -> u64 {
        model * 10
    }
}

fn pool(budget: Option<u64>, models: &[(&str, &Arc<Fake>)]) -> Arc<Pool<u64>> {
    let pool = Arc::new(Pool::new(budget));
    for (name, fake) in models {
        pool.offer(name, Arc::<Fake>::clone(fake) as Arc<dyn Loader<u64>>, None);
    }
    pool
}

fn loaded(pool: &Pool<u64>) -> Vec<String> {
    let is_loaded =
        |(name, status, _): (String, Status, _)| matches!(status, Status::Loaded { .. }).then_some(name);
    pool.all().into_iter().filter_map(is_loaded).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_who_ask_wait_for_one_load() {
    let a = Fake::new(1);
    let pool = pool(None, &[("a", &a)]);
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let pool = Arc::clone(&pool);
            tokio::spawn(async move { pool.get("a").await.map(|model| *model) })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), Ok(1));
    }
    assert_eq!(a.loads(), 1);
    assert_eq!(pool.get("b").await, Err(PoolError::Unknown("b".to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_load_is_an_error_for_those_who_waited_only() {
    let a = Fake::new(1);
    a.fails.store(true, Ordering::SeqCst);
    let panics = Fake::with(1, |fake| fake.panics = true);
    let pool = pool(None, &[("a", &a), ("p", &panics)]);
    let (one, two) = tokio::join!(pool.get("a"), pool.get("a"));
    let why = PoolError::Load { name: "a".to_owned(), why: "it is broken".to_owned() };
    assert_eq!((one, two), (Err(why.clone()), Err(why)));
    assert_eq!(a.loads(), 1);
    assert!(pool.all()[0].2.as_ref().unwrap().contains("it is broken"));
    a.fails.store(false, Ordering::SeqCst);
    assert_eq!(pool.get("a").await, Ok(Arc::new(1)));
    assert_eq!((a.loads(), pool.all()[0].2.clone()), (2, None));
    assert!(matches!(pool.get("p").await, Err(PoolError::Load { .. })));
    assert_eq!(pool.get("a").await, Ok(Arc::new(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_goes_on_when_the_one_who_asked_has_gone() {
    let a = Fake::new(1);
    let pool = pool(None, &[("a", &a)]);
    let asked = tokio::time::timeout(Duration::from_millis(5), pool.get("a")).await;
    assert!(asked.is_err());
    assert_eq!(pool.get("a").await, Ok(Arc::new(1)));
    assert_eq!(a.loads(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_least_recently_used_makes_room() {
    let (a, b, c) = (Fake::new(4), Fake::new(4), Fake::new(4));
    let pool = pool(Some(100), &[("a", &a), ("b", &b), ("c", &c)]);
    let in_use =
        || pool.all().iter().any(|(_, status, _)| matches!(status, Status::Loaded { users: 1.., .. }));
    for name in ["a", "b", "a", "c"] {
        pool.get(name).await.unwrap();
        // The load's own task lets go of the model a moment after those who waited have it.
        while in_use() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    assert_eq!(loaded(&pool), ["a", "c"]);
    let large = Fake::new(11);
    pool.offer("large", large.clone(), None);
    let error = PoolError::TooLarge { name: "large".to_owned(), bytes: 110, budget: 100 };
    assert_eq!(pool.get("large").await, Err(error));
    assert_eq!((loaded(&pool), large.loads()), (vec!["a".to_owned(), "c".to_owned()], 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_use_stays_and_who_needs_its_memory_waits() {
    let (a, b) = (Fake::new(6), Fake::new(6));
    let pool = pool(Some(100), &[("a", &a), ("b", &b)]);
    let in_use = pool.get("a").await.unwrap();
    let waiting = {
        let pool = Arc::clone(&pool);
        tokio::spawn(async move { pool.get("b").await })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!((loaded(&pool), b.loads()), (vec!["a".to_owned()], 0));
    // Unloaded by hand, it still counts until it is given back.
    assert_eq!(pool.unload("a"), Ok(true));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!((b.loads(), *in_use), (0, 6));
    drop(in_use);
    assert_eq!(waiting.await.unwrap(), Ok(Arc::new(6)));
    assert_eq!(loaded(&pool), ["b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_models_are_unloaded_after_their_time() {
    let a = Fake::new(1);
    let pool = Arc::new(Pool::new(None));
    pool.offer("a", Arc::<Fake>::clone(&a) as Arc<dyn Loader<u64>>, Some(Duration::from_millis(50)));
    let in_use = pool.get("a").await.unwrap();
    tokio::time::sleep(Duration::from_millis(80)).await;
    pool.unload_idle();
    assert_eq!(loaded(&pool), ["a"]);
    drop(in_use);
    pool.unload_idle();
    assert_eq!(loaded(&pool), ["a"], "its time begins now");
    tokio::time::sleep(Duration::from_millis(80)).await;
    pool.unload_idle();
    assert_eq!(loaded(&pool), [""; 0]);
    pool.get("a").await.unwrap();
    assert_eq!(a.loads(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_there_at_the_start_stays() {
    let a = Fake::new(6);
    let pool = pool(Some(100), &[("a", &a)]);
    pool.add_loaded("start", Arc::new(5), 50);
    assert_eq!(pool.unload("start"), Err(PoolError::Pinned("start".to_owned())));
    let error = PoolError::TooLarge { name: "a".to_owned(), bytes: 60, budget: 50 };
    assert_eq!(pool.get("a").await, Err(error));
    assert_eq!(pool.unload("a"), Ok(false));
    assert_eq!(pool.get("start").await, Ok(Arc::new(5)));
}

/// Many tasks, three models, room for two: nobody gets the wrong one, and the budget holds.
#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_is_served() {
    let fakes: Vec<Arc<Fake>> =
        (1..=3).map(|size| Fake::with(size, |fake| fake.takes = Duration::from_millis(1))).collect();
    let names = ["1", "2", "3"];
    let offers: Vec<(&str, &Arc<Fake>)> = names.into_iter().zip(&fakes).collect();
    let pool = pool(Some(50), &offers);
    let tasks: Vec<_> = (0..200usize)
        .map(|i| {
            let pool = Arc::clone(&pool);
            tokio::spawn(async move {
                let size = (i * 7 % 3 + 1) as u64;
                let model = pool.get(&size.to_string()).await.unwrap();
                tokio::time::sleep(Duration::from_millis((i % 5) as u64)).await;
                assert!(pool.lock().taken() <= 50);
                assert_eq!(*model, size);
            })
        })
        .collect();
    for task in tasks {
        tokio::time::timeout(Duration::from_secs(30), task).await.unwrap().unwrap();
    }
}
