{
    // Every example has the whole process for itself: it runs on a simulated machine of its own.
    testkit::make_default(testkit::Config::default()).expect("the first runtime of the process");
}
