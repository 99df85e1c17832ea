"""Events to try Tallyweir with: real flights, and made-up page views."""
